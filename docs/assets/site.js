// Short code in a sentence, such as `--for slurm`, stays on one line.
for (const code of document.querySelectorAll('.md-typeset :is(p, li, dd) > code')) {
  if (code.textContent.length < 30) code.style.whiteSpace = 'nowrap';
}
// Names for screen readers and access by keyboard where the theme has none. The theme adds these elements while the page loads.
function label() {
  document.querySelector('.md-search[role="dialog"]')?.setAttribute('aria-label', 'Search');
  for (const table of document.querySelectorAll('.md-typeset__scrollwrap')) table.tabIndex = 0;
  // Names of navigation regions must differ: a repeated name gets a number.
  const uses = new Map();
  const name = (part, text) => {
    const use = (uses.get(text) ?? 0) + 1;
    uses.set(text, use);
    part.setAttribute('aria-label', use === 1 ? text : `${text} (${use})`);
  };
  const text = (part) => part.textContent.replace('¶', '').trim();
  let heading;
  for (const part of document.querySelectorAll('.md-typeset :is(h1, h2, h3, .md-code__nav)')) {
    const title = part.closest('.highlight')?.querySelector('.filename');
    if (part.matches('.md-code__nav')) name(part, `Code: ${text(title ?? heading)}`);
    else heading = part;
  }
  for (const part of document.querySelectorAll('.md-nav[data-md-level]:not([data-md-level="0"])')) {
    part.removeAttribute('aria-labelledby');
    name(part, `Pages: ${text(part.querySelector('.md-nav__title'))}`);
  }
}
new MutationObserver(label).observe(document.body, { childList: true, subtree: true });
label();
