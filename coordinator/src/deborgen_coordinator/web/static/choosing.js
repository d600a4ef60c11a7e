// Choosing rows: one box for all, and buttons that wait until something is chosen.
export function startChoosing() {
  const boxes = () => [...document.querySelectorAll("[data-row] input[type=checkbox]")];
  const show = () => {
    const chosen = boxes().filter((box) => box.checked).length;
    for (const bar of document.querySelectorAll("[data-with-chosen]")) {
      for (const button of bar.querySelectorAll("button")) button.disabled = !chosen;
      bar.querySelector("[data-chosen-count]").textContent = chosen ? `${chosen} chosen:` : "Choose rows, then:";
    }
  };
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-all]")) for (const box of boxes()) box.checked = event.target.checked;
    show();
  });
  document.addEventListener("news", show);
  show();
}
