// Elements, made without HTML: every text goes in as text, whoever wrote it.

const svgSpace = "http://www.w3.org/2000/svg";

function made(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes ?? {})) {
        if (typeof value === "function")
            node.addEventListener(name, value);
        else if (value !== null && value !== undefined && value !== false)
            node.setAttribute(name, value === true ? "" : String(value));
    }
    node.append(...children.filter(child => child !== null && child !== undefined && child !== ""));
    return node;
}

/** An HTML element. A function among the attributes is a listener; a child that is a string becomes a text. */
export const html = (tag, attributes, ...children) => made(document.createElement(tag), attributes, children);
/** The same of SVG. */
export const svg = (tag, attributes, ...children) => made(document.createElementNS(svgSpace, tag), attributes, children);

/** The element with this identifier. */
export const at = identifier => document.getElementById(identifier);

/** Sets a text where it differs, so that nothing is read out twice. */
export function write(node, text) {
    if (node.textContent !== text)
        node.textContent = text;
}

/** Replaces the options of a choice, and keeps what is chosen. options: [value, text]. */
export function offer(select, options) {
    const now = JSON.stringify(options);
    if (select.dataset.options === now)
        return;
    const chosen = select.value;
    select.dataset.options = now;
    select.replaceChildren(...options.map(([value, text]) => html("option", { value }, text)));
    if (options.some(([value]) => value === chosen))
        select.value = chosen;
}

/** Replaces what is in a node where it is to say something else. key: says what it says. */
export function fill(node, key, ...children) {
    if (node.dataset.key === key)
        return;
    node.dataset.key = key;
    node.replaceChildren(...children);
}

/** Takes Cockpit's own choice of colours, which goes before the system's. */
export function followTheme() {
    const isSystemDark = matchMedia("(prefers-color-scheme: dark)");
    const chosen = () => {
        try {
            return localStorage.getItem("shell:style") ?? "auto";
        } catch {
            // A page without a place of its own keeps nothing.
            return "auto";
        }
    };
    const use = () => {
        const style = chosen();
        document.documentElement.dataset.theme = style === "dark" || style === "auto" && isSystemDark.matches ? "dark" : "light";
    };
    use();
    window.addEventListener("storage", use);
    window.addEventListener("cockpit-style", use);
    isSystemDark.addEventListener("change", use);
}
