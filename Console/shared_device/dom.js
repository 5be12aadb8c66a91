// Makes elements without parsing HTML: every text becomes a text node, so text from another process cannot become
// markup.

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

/** Makes an HTML element. An attribute that is a function becomes a listener; a child that is a string becomes a text. */
export const html = (tag, attributes, ...children) => made(document.createElement(tag), attributes, children);
/** Makes an SVG element, with the same rules. */
export const svg = (tag, attributes, ...children) => made(document.createElementNS(svgSpace, tag), attributes, children);

export const at = identifier => document.getElementById(identifier);

/** Sets a text if it differs, so that screen readers do not read an unchanged text again. */
export function write(node, text) {
    if (node.textContent !== text)
        node.textContent = text;
}

/** Replaces the options of a select element and keeps its choice. options: pairs [value, text]. */
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

/** Replaces the children of a node if `key` differs from the last call. key: identifies the content. */
export function fill(node, key, ...children) {
    if (node.dataset.key === key)
        return;
    node.dataset.key = key;
    node.replaceChildren(...children);
}

/** Follows Cockpit's choice of colours, which takes precedence over the system's. */
export function followTheme() {
    const isSystemDark = matchMedia("(prefers-color-scheme: dark)");
    const chosen = () => {
        try {
            return localStorage.getItem("shell:style") ?? "auto";
        } catch {
            // Access to `localStorage` throws in a page that has no storage.
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
