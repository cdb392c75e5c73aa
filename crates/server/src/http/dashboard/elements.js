// Elements, made without HTML: all text from the server stays text.

const byId = (id) => document.getElementById(id);

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

/** An element of HTML with attributes and children: elements or text. */
function element(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An element of SVG. */
function shape(tag, attributes, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

/** Sets the text of an element, and the number behind it for whoever reads the page by program. */
function show(id, text, value) {
  const node = byId(id);
  if (node.textContent !== text) node.textContent = text;
  if (value !== undefined) node.dataset.value = String(value);
}

/** Replaces the children, unless `key` says that they would be the same: a selection survives. */
function replace(node, key, children) {
  const text = JSON.stringify(key);
  if (node.dataset.key === text) return;
  node.dataset.key = text;
  node.replaceChildren(...children());
}

/** Fills a list of names and values; a value may be `[text, class]`. */
function describe(id, rows) {
  replace(byId(id), rows, () => rows.flatMap(([name, value]) => {
    const [text, kind] = Array.isArray(value) ? value : [value, null];
    return [element("dt", {}, name), element("dd", {class: kind}, text)];
  }));
}

/** Makes objects throw when they are asked for a field that the server does not send. */
function strict(value, path) {
  if (Array.isArray(value)) return value.map((part) => strict(part, path + "[]"));
  if (value === null || typeof value !== "object") return value;
  const fields = {};
  for (const [name, part] of Object.entries(value)) {
    // Thousands of numbers, read by column.
    fields[name] = name === "samples" ? part : strict(part, path + "." + name);
  }
  return new Proxy(fields, {
    get(target, name) {
      // `JSON.stringify` looks for a method of this name.
      if (typeof name === "string" && name !== "toJSON" && !(name in target)) {
        throw new Error("the server sends no " + path + "." + name);
      }
      return target[name];
    },
  });
}
