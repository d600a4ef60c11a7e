// What every page has: keys, copying, choosing rows, and news. Pages work without all of it.
import { startKeys } from "./keys.js";
import { startNews } from "./news.js";
import { startChoosing } from "./choosing.js";

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
  } catch {
    // Without TLS, browsers refuse the clipboard: the command is selected instead.
    const code = button.parentElement.querySelector("code");
    if (code) getSelection().selectAllChildren(code);
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = before; }, 1500);
});

document.addEventListener("submit", (event) => {
  const question = event.submitter?.dataset.confirm;
  if (question && !confirm(question)) event.preventDefault();
});

startKeys();
startChoosing();
startNews();
