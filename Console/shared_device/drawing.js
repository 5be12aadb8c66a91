// Draws rounds and days. Positions of bars are in per cent, so that they follow the width without a redraw.

import { html, svg } from "./dom.js";
import { axisOf, meaningOf, saidOf, signs, spread, tableOf } from "./rounds.js";
import { dayStates, hoursOf } from "./day.js";
import { say } from "./texts.js";
import { clock, span } from "./words.js";

const bars = ["owed", "heard", "cleaning", "broken", "away"];
const meaningOfBar = kind => say(`bar.${kind}`);

const percent = (value, whole) => `${(100 * value / whole).toFixed(3)}%`;

/** The scale that all rows of a drawing share. width: of the track, in pixels. */
function scaleOf(rows, width) {
    const axis = axisOf(rows, width);
    const x = seconds => percent(seconds - axis.begin, axis.end - axis.begin);
    const ticks = height => axis.ticks.map(tick => svg("line", { class: tick === 0 ? "origin" : "tick", x1: x(tick), x2: x(tick), y1: 0, y2: height }));
    const labels = axis.ticks.map(tick => [tick, (tick - axis.begin) / (axis.end - axis.begin)]).filter(([tick, share]) => tick === 0 || share > 0.02 && share < 0.94)
        .map(([tick]) => svg("text", { class: tick === 0 ? "time first" : "time", x: x(tick), y: 13 }, tick === 0 ? say("axis.signOut") : tick < 0 ? `−${span(-tick)}` : span(tick)));
    return { axis, width, x, ticks, labels };
}

/**
 * The waterfall of a round.
 *
 * width: of the track, in pixels. opened: the keys of rows that show their lines. toggle, waive: called with the row.
 * The drawing offers waiving if `waive` is given. noLines: the text of a row without lines. name: identifies this
 * drawing on a page with several.
 */
export function waterfall(rows, width, opened, now, { toggle, waive, noLines = say("noLines"), name = "lines" }) {
    const scale = scaleOf(rows, width);
    const head = html("div", { class: "row axis", "aria-hidden": "true" }, html("span"), svg("svg", { height: 20, width: "100%" }, ...scale.labels));
    const items = rows.map((row, index) => item(row, `${name}-${index}`, scale, { opened, now, toggle, waive, noLines }));
    return html("div", {}, legend(rows), head, html("ol", { class: "rows" }, ...items));
}

/** A row's bars and marks, 40 pixels high. */
function track(row, { axis, width, x, ticks }) {
    const said = row.marks.map(mark => saidOf(mark, span)).join(", ");
    const label = [row.name, row.word].filter(Boolean).join(": ") + (said ? `; ${said}` : "");
    const places = spread(row.marks.map(mark => (mark.at - axis.begin) / (axis.end - axis.begin) * width), 20, Math.max(width, 20));
    return svg("svg", { class: "track", height: 40, width: "100%", role: "img", "aria-label": label },
        ...ticks(40),
        ...row.bars.map(bar => svg("rect", { class: `segment ${bar.kind}${bar.isOpen ? " open" : ""}`, x: x(bar.from), width: percent(Math.max(0, bar.to - bar.from), axis.end - axis.begin), y: 24, height: 12, rx: 2 },
            svg("title", {}, say(bar.isOpen ? "bar.open" : "bar.closed", { what: meaningOfBar(bar.kind), from: span(bar.from), to: span(bar.to) })))),
        ...row.marks.flatMap((mark, place) => {
            const sign = signs[mark.kind];
            return [
                svg("line", { class: "stem", x1: percent(places[place], width), y1: 18, x2: x(mark.at), y2: 30 }),
                svg("svg", { x: percent(places[place], width), y: 10, class: `mark ${sign.style}`, overflow: "visible" },
                    svg("title", {}, saidOf(mark, span)), svg("circle", { r: 8 }), svg("text", { y: 3.6 }, sign.letter)),
            ];
        }));
}

function item(row, panel, scale, { opened, now, toggle, waive, noLines }) {
    const isOpen = opened.has(row.key);
    const button = html("button", { type: "button", class: "name", "aria-expanded": String(isOpen), "aria-controls": panel, "data-key": row.key, title: row.identifier, click: () => toggle(row) },
        html("span", { class: "arrow", "aria-hidden": "true" }, isOpen ? "▾" : "▸"), html("span", { class: "app" }, row.name));
    const state = html("span", { class: `state ${row.style}` }, row.sign ? html("span", { "aria-hidden": "true" }, `${row.sign} `) : null, row.word);
    const lines = html("div", { id: panel, class: "opened", hidden: !isOpen }, ...(isOpen ? details(row, now, waive, noLines) : []));
    return html("li", {}, html("div", { class: "row" }, html("div", { class: "label" }, button, state), track(row, scale)), lines);
}

/** The identifier of an app, with its user if the broker knows it. */
export const appOf = ({ identifier, user }) => user === null ? identifier : say("app.ofUser", { app: identifier, user: String(user) });

const logLine = (line, now) => html("li", {}, html("span", { class: "when" }, line.when ?? clock(line.at, now)), " ", html("b", {}, line.event), line.detail ? ` ${line.detail}` : "");

function details(row, now, waive, noLines) {
    const lines = row.lines.map(line => logLine(line, now));
    return [
        html("p", { class: "dim" }, appOf(row)),
        row.detail ? html("p", {}, say(row.app.progress === "waived" ? "reasonOfWaiver" : "messageOf", { detail: row.detail })) : null,
        lines.length ? html("ul", {}, ...lines) : html("p", { class: "dim" }, noLines),
        waiver(row, waive),
    ].filter(Boolean);
}

const waiver = (row, waive) => waive && !row.done ? html("button", { type: "button", class: "small", "data-key": `waive ${row.key}`, click: () => waive(row) }, say("waive.button")) : null;

/** Replaces the drawing. If the focus was in the box, it moves to the new element with the same key. */
export function replace(box, drawn) {
    const focused = box.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    box.replaceChildren(drawn);
    if (focused)
        [...box.querySelectorAll("[data-key]")].find(node => node.dataset.key === focused)?.focus();
}

/** Samples of the bars and signs that occur, with their meanings and widths. */
function samples(rows) {
    const drawn = bars.filter(kind => rows.some(row => row.bars.some(bar => bar.kind === kind && (bar.isOpen || bar.to > bar.from))));
    const kinds = Object.keys(signs).filter(kind => rows.some(row => row.marks.some(mark => mark.kind === kind)));
    return [
        ...drawn.map(kind => ({ meaning: meaningOfBar(kind), width: 22, sample: svg("svg", { width: 22, height: 18, "aria-hidden": "true" }, svg("rect", { class: `segment ${kind}`, x: 1, y: 4, width: 20, height: 10, rx: 2 })) })),
        ...kinds.map(kind => ({ meaning: meaningOf(kind), width: 18, sample: svg("svg", { width: 18, height: 18, "aria-hidden": "true" },
            svg("g", { class: `mark ${signs[kind].style}`, transform: "translate(9 9)" }, svg("circle", { r: 8 }), svg("text", { y: 3.6 }, signs[kind].letter))) })),
    ];
}

const legend = rows => html("ul", { class: "legend", "aria-label": say("legend") }, ...samples(rows).map(({ sample, meaning }) => html("li", {}, sample, meaning)));

/**
 * The waterfall as one picture that contains its colours and its style.
 *
 * width: in pixels. theme: `light` or `dark`. title: the text alternative.
 */
export function picture(rows, width, theme, title) {
    const [margin, top, height] = [14, 34, 66];
    const scale = scaleOf(rows, width - 2 * margin);
    const within = (y, size, ...children) => svg("svg", { x: margin, y, width: width - 2 * margin, height: size, overflow: "visible" }, ...children);
    const lines = rows.map((row, index) => within(top + index * height, height,
        svg("text", { class: "name", y: 16 }, svg("tspan", {}, row.name), svg("tspan", { class: `state ${row.style}`, dx: 10 }, `${row.sign} ${row.word}`)),
        svg("svg", { y: 20, width: "100%", height: 40, overflow: "visible" }, track(row, scale))));
    let [x, y] = [margin, top + rows.length * height + 12];
    const meanings = samples(rows).map(({ sample, width: taken, meaning }) => {
        const needed = taken + meaning.length * 6.6 + 24;
        if (x + needed > width && x > margin)
            [x, y] = [margin, y + 26];
        const drawn = svg("svg", { x, y, overflow: "visible" }, sample, svg("text", { class: "note", x: taken + 6, y: 13 }, meaning));
        x += needed;
        return drawn;
    });
    // Copies from the page's style the colours of the theme and the rules for drawings.
    const rules = [...document.styleSheets].flatMap(sheet => [...sheet.cssRules]).map(rule => rule.cssText);
    const colours = rules.filter(rule => rule.includes(`[data-theme="${theme}"]`) && rule.includes("--ink")).map(rule => rule.replace(/^[^{]*/, "svg "));
    return svg("svg", { class: "picture", viewBox: `0 0 ${width} ${y + 30}`, role: "img", "aria-label": title },
        svg("style", {}, [...colours, ...rules.filter(rule => rule.startsWith("svg"))].join("\n")), svg("rect", { class: "paper", width: "100%", height: "100%", rx: 6 }),
        within(10, 20, ...scale.labels), ...lines, ...meanings);
}

/** The waterfall and the lines of its opened rows as a table. now, waive, noLines: see `waterfall`. */
export function table(rows, now, { waive, noLines = "–" }) {
    const { heads, cells } = tableOf(rows, span);
    const styles = [null, null, "state", "number", "number", "number", "wide", "wide", "wide"];
    const lines = rows.map((row, index) => html("tr", {}, ...cells[index].map((cell, place) => {
        if (place === 0)
            return html("th", { scope: "row" }, cell, row.identifier === cell ? null : html("span", { class: "key" }, row.identifier));
        if (styles[place] === "state")
            return html("td", { class: row.style }, cell, waiver(row, waive));
        const isLog = place === heads.length - 1;
        return html("td", { class: styles[place] }, !isLog ? cell : row.lines.length ? html("ul", {}, ...row.lines.map(line => logLine(line, now))) : noLines);
    })));
    return html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": say("table.label"), "data-key": "table" },
        html("table", {}, html("thead", {}, html("tr", {}, ...heads.map(head => html("th", { scope: "col" }, head)))), html("tbody", {}, ...lines)));
}

const meaningOfState = state => say(`day.${state}`);

/** Draws the states of a day with a scale of hours, and a legend with the duration of each state. */
export function day(segments, from, now, width) {
    const x = time => percent(time - from, now - from);
    const drawn = segments.map(segment => svg("rect", { class: `day ${segment.state}`, x: x(segment.from), width: percent(segment.to - segment.from, now - from), y: 2, height: 26 },
        svg("title", {}, say("day.segment", { state: meaningOfState(segment.state), from: clock(segment.from, now), to: clock(segment.to, now), time: span(segment.to - segment.from) }))));
    const hours = hoursOf(from, now, Math.max(2, Math.floor(width / 80)));
    const labels = hours.flatMap(hour => {
        const share = (hour.time - from) / (now - from);
        return [svg("line", { class: "tick", x1: x(hour.time), x2: x(hour.time), y1: 0, y2: 34 }), share > 0.03 && share < 0.97 ? svg("text", { class: "time", x: x(hour.time), y: 47 }, hour.label) : null].filter(Boolean);
    });
    const totals = dayStates.map(state => [state, segments.filter(segment => segment.state === state).reduce((sum, segment) => sum + segment.to - segment.from, 0)]).filter(([, sum]) => sum > 0);
    const words = totals.map(([state, sum]) => say("day.total", { state: meaningOfState(state), time: span(sum) }));
    return html("div", {},
        svg("svg", { width: "100%", height: 52, role: "img", "aria-label": say("day.label", { states: words.join("; ") }) },
            svg("defs", {}, svg("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("rect", { class: "hatch", width: 2, height: 6 }))),
            ...drawn, ...labels),
        html("ul", { class: "legend" }, ...totals.map(([state], place) => html("li", {}, svg("svg", { width: 22, height: 12, "aria-hidden": "true" }, svg("rect", { class: `day ${state}`, x: 1, y: 1, width: 20, height: 10 })), words[place]))));
}
