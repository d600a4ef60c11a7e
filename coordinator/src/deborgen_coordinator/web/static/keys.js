// The keys: "/" finds, "g r" goes, "j" and "k" move between rows, "?" shows them all.
const PLACES = { n: "/", r: "/runs", w: "/workers", e: "/events" };

export function startKeys() {
  let going = false;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const typing = event.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable], dialog");
    if (typing) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const wasGoing = going;
    going = false;
    if (wasGoing && PLACES[event.key]) location.assign(PLACES[event.key]);
    else if (event.key === "g") going = true;
    else if (event.key === "/") document.getElementById("find")?.focus();
    else if (event.key === "?") document.getElementById("keys")?.showModal();
    else if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
    else if (event.key === "x") current()?.querySelector("input[type=checkbox]")?.click();
    else if (event.key === "Enter" && event.target === document.body) current()?.querySelector("a")?.click();
    else return;
    event.preventDefault();
  });
}

const rows = () => [...document.querySelectorAll("[data-row]")];
const current = () => document.querySelector("[data-row].at");

function step(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.indexOf(current());
  const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1)];
  current()?.classList.remove("at");
  next.classList.add("at");
  next.scrollIntoView({ block: "nearest" });
}
