"use strict";
// Sort a table by the column whose title is pressed; numbers by what they stand for.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, body = head.closest("table").tBodies[0];
    const column = [...head.parentElement.children].indexOf(head);
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => {
      const cell = row.children[column];
      return cell.dataset.order === undefined ? cell.textContent : Number(cell.dataset.order);
    };
    const by = (a, b) => {
      const [x, y] = [key(a), key(b)];
      if (typeof x === typeof y && typeof x === "number") return x - y;
      return String(x).localeCompare(String(y), undefined, { numeric: true });
    };
    body.append(...[...body.rows].sort((a, b) => (down ? by(b, a) : by(a, b))));
  });
}
// Show where a job is: in tables and pictures alike.
const show = (job) => {
  document.body.classList.toggle("one-lit", job !== undefined);
  for (const part of document.querySelectorAll("[data-job]")) {
    part.classList.toggle("lit", job !== undefined && part.dataset.job === job);
  }
};
for (const kind of ["pointerover", "focusin"]) {
  document.addEventListener(kind, (event) => show(event.target.closest("[data-job]")?.dataset.job));
}
document.addEventListener("pointerleave", () => show(undefined));
