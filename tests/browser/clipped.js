// Returns what is cut or lies over something else: texts, tables that are wider than their place, words in charts.
() => {
  const found = [];
  const PICTURES = '[data-testid="stDataFrame"], [data-testid="stVegaLiteChart"], svg, [aria-hidden="true"], .st-key-keys';
  const named = node =>
    `${node.tagName.toLowerCase()}.${[...node.classList].slice(-1)} "${node.textContent.trim().slice(0, 60)}"`;
  for (const node of document.querySelectorAll('.stApp *, [role=dialog] *')) {
    if (node.closest(PICTURES)) continue;
    const style = getComputedStyle(node), box = node.getBoundingClientRect();
    if (style.visibility === 'hidden' || box.width <= 1 || box.height <= 1) continue;
    const own = [...node.childNodes].some(child => child.nodeType === 3 && child.textContent.trim());
    const hides = ['hidden', 'clip'].includes(style.overflowX);
    const whole = node.title || node.closest('[title]');  // the pointer shows all of it, as of a name in a list
    if (own && hides && !whole && node.scrollWidth > node.clientWidth + 1) found.push(`clipped: ${named(node)}`);
    if (own && box.right > document.documentElement.clientWidth + 1) found.push(`beyond the screen: ${named(node)}`);
  }
  for (const table of document.querySelectorAll('[data-testid="stDataFrame"] .dvn-scroller'))
    if (table.scrollWidth > table.clientWidth + 1 && !table.closest('.st-key-access_table')) {  // its game is pinned
      const heads = [...table.parentElement.querySelectorAll('th')].map(each => each.textContent);
      found.push(`${table.scrollWidth - table.clientWidth} px wider than its place: a table with ${heads.join(', ')}`);
    }
  if (document.documentElement.scrollWidth > window.innerWidth) found.push('the page scrolls sideways');
  for (const chart of document.querySelectorAll('[data-testid="stVegaLiteChart"] svg')) {
    const words = [...chart.querySelectorAll('text')].filter(each => {
      const style = getComputedStyle(each);
      return each.textContent.trim() && style.opacity !== '0' && style.fill !== 'rgba(0, 0, 0, 0)';
    });
    const boxes = words.map(each => [each.textContent, each.getBoundingClientRect()]);
    boxes.forEach(([one, a], at) => boxes.slice(at + 1).forEach(([other, b]) => {
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 1 && high > 4) found.push(`"${one}" lies over "${other}"`);
    }));
  }
  return found;
}
