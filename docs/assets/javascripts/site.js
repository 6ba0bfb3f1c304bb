// What the theme leaves to be done in the page. Everything is readable without it.

// A box that scrolls sideways can be scrolled from the keyboard only if it takes the focus. The theme
// sees to code, and only where there is a mouse; here it is done for every such box on any device.
const boxes = [
  ".md-typeset__scrollwrap", ".md-typeset pre > code", ".md-typeset div.arithmatex",
  ".md-typeset figure > .scroll", ".md-typeset .tabbed-labels",
].join();
const sizes = new ResizeObserver(entries => entries.forEach(({ target }) => {
  if (target.scrollWidth > target.clientWidth) target.setAttribute("tabindex", "0");
  else target.removeAttribute("tabindex");
}));

// The theme makes the corner with a block's copy button a navigation landmark without a name, one
// for each block, as soon as the block is seen.
const unmark = () => document.querySelectorAll("nav.md-code__nav:not([role])")
  .forEach(corner => corner.setAttribute("role", "presentation"));
new MutationObserver(unmark).observe(document.body, { childList: true, subtree: true });

// `document$` speaks on load and after each instant navigation.
document$.subscribe(() => {
  sizes.disconnect();
  document.querySelectorAll(boxes).forEach(box => sizes.observe(box));
});
