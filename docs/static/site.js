"use strict";
/* A page that is opened as a file cannot read others: the search then shows titles, and does not try for excerpts. */
if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

/* What can be scrolled sideways can be reached and scrolled by the keyboard. */
addEventListener("load", () => {
  for (const part of document.querySelectorAll(".formula, pre, .table-wrapper")) {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
  }
});
