// Short code in a sentence, such as `--for slurm`, stays on one line.
for (const code of document.querySelectorAll('.md-typeset :is(p, li, dd) > code')) {
  if (code.textContent.length < 30) code.style.whiteSpace = 'nowrap';
}
// Names for screen readers and access by keyboard where the theme has none. The theme adds these elements while the page loads.
function label() {
  document.querySelector('.md-search[role="dialog"]')?.setAttribute('aria-label', 'Search');
  for (const table of document.querySelectorAll('.md-typeset__scrollwrap')) table.tabIndex = 0;
  document.querySelectorAll('.md-code__nav').forEach((part, number) => part.setAttribute('aria-label', `Block of code ${number + 1}`));
  document.querySelectorAll('.md-nav[data-md-level]:not([data-md-level="0"])').forEach((part, number) => {
    part.removeAttribute('aria-labelledby');
    part.setAttribute('aria-label', `Section ${number + 1}`);
  });
}
new MutationObserver(label).observe(document.body, { childList: true, subtree: true });
label();
