// A change of a chooser shows its chart at once. A large map has no links: a click finds the cell, and opens its job.
for (const form of document.querySelectorAll("[data-submit-on-change]")) {
  form.addEventListener("change", () => form.requestSubmit());
}

function cellAt(event) {
  const svg = event.target.closest("svg.chart");
  const cells = svg?.querySelector(".cells");
  if (!cells || event.target.closest("a")) return null;
  const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(cells.getScreenCTM().inverse());
  const column = Math.floor(at.x / cells.dataset.wide), row = Math.floor(at.y / cells.dataset.tall);
  const inside = column >= 0 && row >= 0 && column < cells.dataset.columns && row < cells.dataset.rows;
  return inside ? { column, row } : null;
}

document.addEventListener("click", (event) => {
  const where = event.target.closest?.("[data-cells]")?.dataset.cells;
  const cell = where && cellAt(event);
  if (cell) location.assign(`${where}&column=${cell.column}&row=${cell.row}`);
});
