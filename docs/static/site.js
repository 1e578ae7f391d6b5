// Names and roles for screen readers, where Sphinx and the theme leave them out.
document.addEventListener("DOMContentLoaded", () => {
  for (const toggle of document.querySelectorAll("summary")) {
    if (!toggle.textContent.trim()) toggle.setAttribute("aria-label", "Show or hide the pages below");
  }
  for (const link of document.querySelectorAll(".sphx-glr-thumbcontainer a")) {
    link.setAttribute("aria-label", link.textContent.trim());
  }
  // A long signature is a list of definitions without terms: lines.
  for (const part of document.querySelectorAll(".sig dl, .sig dd")) {
    const line = document.createElement("div");
    if (part.matches("dd")) line.className = "signature-line";
    line.append(...part.childNodes);
    part.replaceWith(line);
  }
});
