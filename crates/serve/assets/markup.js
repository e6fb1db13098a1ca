// The few marks that answers of models have: fenced code, `code`, **bold**. Text becomes text nodes, never HTML.

function marked(text) {
  const nodes = [];
  const lines = text.split("\n");
  let paragraph = [];
  const close = () => {
    const joined = paragraph.join("\n").replace(/^\n+|\s+$/g, "");
    if (joined) nodes.push(element("p", inline(joined)));
    paragraph = [];
  };
  for (let i = 0; i < lines.length; i++) {
    const fence = /^\s*(`{3,})/.exec(lines[i]);
    if (!fence) {
      if (lines[i].trim() === "") close();
      else paragraph.push(lines[i]);
      continue;
    }
    close();
    const code = [];
    while (++i < lines.length && !lines[i].trim().startsWith(fence[1])) code.push(lines[i]);
    nodes.push(element("pre", [element("code", [code.join("\n")])]));
  }
  close();
  return nodes;
}

function inline(text) {
  const nodes = [];
  let at = 0;
  for (const found of text.matchAll(/`([^`\n]+)`|\*\*([^*\n]+)\*\*/g)) {
    nodes.push(text.slice(at, found.index));
    nodes.push(found[1] !== undefined ? element("code", [found[1]]) : element("strong", [found[2]]));
    at = found.index + found[0].length;
  }
  nodes.push(text.slice(at));
  return nodes;
}

function element(name, children, kind) {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  made.append(...children);
  return made;
}
