// Draws rounds and days. Bars have their places in per cent, so that they follow the width by themselves.

import { html, svg } from "./dom.js";
import { axisOf, signs, spread } from "./rounds.js";
import { hoursOf, meanings } from "./day.js";
import { clock, span } from "./words.js";

const meaningsOfBars = { owed: "has not heard of it", heard: "was told, has not begun", cleaning: "cleans up", broken: "failed, still owes" };

const percent = (value, whole) => `${(100 * value / whole).toFixed(3)}%`;

/**
 * The waterfall of a round.
 *
 * width: of the track, in pixels. opened: the keys of rows that show their lines. toggle, waive: called with the row. Waiving is offered where
 * `waive` is there.
 */
export function waterfall(rows, width, opened, now, { toggle, waive }) {
    const axis = axisOf(rows, width);
    const x = seconds => percent(seconds, axis.end);
    const ticks = height => axis.ticks.map(tick => svg("line", { class: tick === 0 ? "origin" : "tick", x1: x(tick), x2: x(tick), y1: 0, y2: height }));
    const labels = axis.ticks.filter(tick => tick / axis.end < 0.94).map(tick =>
        svg("text", { class: tick === 0 ? "time first" : "time", x: x(tick), y: 13 }, tick === 0 ? "sign-out" : span(tick)));
    const head = html("div", { class: "row axis", "aria-hidden": "true" }, html("span"), svg("svg", { height: 20, width: "100%" }, ...labels));
    const items = rows.map((row, index) => item(row, index, { axis, width, x, ticks, opened, now, toggle, waive }));
    return html("div", {}, legend(rows), head, html("ol", { class: "rows" }, ...items));
}

function item(row, index, { axis, width, x, ticks, opened, now, toggle, waive }) {
    const isOpen = opened.has(row.key);
    const panel = `lines-${index}`;
    const said = row.marks.map(mark => `${signs[mark.kind].meaning} after ${span(mark.at)}`).join(", ");
    const label = `${row.name}: ${row.word}${said ? `; ${said}` : ""}`;
    const places = spread(row.marks.map(mark => mark.at / axis.end * width), 20, Math.max(width, 20));
    const track = svg("svg", { class: "track", height: 40, width: "100%", role: "img", "aria-label": label },
        ...ticks(40),
        ...row.bars.map(bar => svg("rect", { class: `segment ${bar.kind}${bar.isOpen ? " open" : ""}`, x: x(bar.from), width: x(Math.max(0, bar.to - bar.from)), y: 24, height: 12, rx: 2 },
            svg("title", {}, `${meaningsOfBars[bar.kind]}, from ${span(bar.from)} ${bar.isOpen ? "on" : `to ${span(bar.to)}`}`))),
        ...row.marks.flatMap((mark, place) => {
            const sign = signs[mark.kind];
            return [
                svg("line", { class: "stem", x1: percent(places[place], width), y1: 18, x2: x(mark.at), y2: 30 }),
                svg("svg", { x: percent(places[place], width), y: 10, class: `mark ${sign.style}`, overflow: "visible" },
                    svg("title", {}, `${span(mark.at)}: ${sign.meaning}`), svg("circle", { r: 8 }), svg("text", { y: 3.6 }, sign.letter)),
            ];
        }));
    const button = html("button", { type: "button", class: "name", "aria-expanded": String(isOpen), "aria-controls": panel, "data-key": row.key, title: row.identifier, click: () => toggle(row) },
        html("span", { class: "arrow", "aria-hidden": "true" }, isOpen ? "▾" : "▸"), html("span", { class: "app" }, row.name));
    const state = html("span", { class: `state ${row.style}` }, html("span", { "aria-hidden": "true" }, `${row.sign} `), row.word);
    const lines = html("div", { id: panel, class: "opened", hidden: !isOpen }, ...(isOpen ? details(row, now, waive) : []));
    return html("li", {}, html("div", { class: "row" }, html("div", { class: "label" }, button, state), track), lines);
}

function details(row, now, waive) {
    const lines = row.lines.map(line => html("li", {}, html("span", { class: "when" }, clock(line.at, now)), " ", html("b", {}, line.event), line.detail ? ` ${line.detail}` : ""));
    return [
        html("p", { class: "dim" }, `${row.identifier}${row.user === null ? "" : `, uid ${row.user}`}`),
        row.detail ? html("p", {}, `${row.app.progress === "waived" ? "The administrator’s reason" : "Its words"}: ${row.detail}`) : null,
        lines.length ? html("ul", {}, ...lines) : html("p", { class: "dim" }, "The log that is loaded has no line of it."),
        waive && !row.done ? html("button", { type: "button", class: "small", click: () => waive(row) }, "Waive …") : null,
    ].filter(Boolean);
}

/** The signs and bars that occur, with their meanings. */
function legend(rows) {
    const kinds = Object.keys(signs).filter(kind => rows.some(row => row.marks.some(mark => mark.kind === kind)));
    const bars = Object.keys(meaningsOfBars).filter(kind => rows.some(row => row.bars.some(bar => bar.kind === kind && (bar.isOpen || bar.to > bar.from))));
    return html("ul", { class: "legend", "aria-label": "Signs" },
        ...bars.map(kind => html("li", {}, svg("svg", { width: 22, height: 12, "aria-hidden": "true" }, svg("rect", { class: `segment ${kind}`, x: 1, y: 1, width: 20, height: 10, rx: 2 })), meaningsOfBars[kind])),
        ...kinds.map(kind => html("li", {}, svg("svg", { width: 18, height: 18, "aria-hidden": "true" }, svg("g", { class: `mark ${signs[kind].style}`, transform: "translate(9 9)" }, svg("circle", { r: 8 }), svg("text", { y: 3.6 }, signs[kind].letter))), signs[kind].meaning)));
}

/** The same as a table. */
export function table(rows) {
    const heads = ["App", "User", "State", "Told after", "Began after", "Ended after", "Its words"];
    const time = value => value === null ? "–" : span(value);
    const lines = rows.map(row => html("tr", {},
        html("th", { scope: "row" }, row.name), html("td", {}, row.user === null ? "–" : String(row.user)),
        html("td", { class: row.style }, `${row.sign} ${row.word}`),
        html("td", { class: "number" }, time(row.app.told)), html("td", { class: "number" }, time(row.app.begun)), html("td", { class: "number" }, time(row.app.finished)),
        html("td", { class: "wide" }, row.detail || "–")));
    return html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "The round as a table" },
        html("table", {}, html("thead", {}, html("tr", {}, ...heads.map(head => html("th", { scope: "col" }, head)))), html("tbody", {}, ...lines)));
}

/** The states of a day, with their hours, and the same in words. */
export function day(segments, from, now, width) {
    const x = time => percent(time - from, now - from);
    const bars = segments.map(segment => svg("rect", { class: `day ${segment.state}`, x: x(segment.from), width: percent(segment.to - segment.from, now - from), y: 2, height: 26 },
        svg("title", {}, `${meanings[segment.state]}, ${clock(segment.from, now)} to ${clock(segment.to, now)}, ${span(segment.to - segment.from)}`)));
    const hours = hoursOf(from, now, Math.max(2, Math.floor(width / 80)));
    const labels = hours.flatMap(hour => {
        const share = (hour.time - from) / (now - from);
        return [svg("line", { class: "tick", x1: x(hour.time), x2: x(hour.time), y1: 0, y2: 34 }), share > 0.03 && share < 0.97 ? svg("text", { class: "time", x: x(hour.time), y: 47 }, hour.label) : null].filter(Boolean);
    });
    const totals = Object.keys(meanings).map(state => [state, segments.filter(segment => segment.state === state).reduce((sum, segment) => sum + segment.to - segment.from, 0)]).filter(([, sum]) => sum > 0);
    const words = totals.map(([state, sum]) => `${meanings[state]} ${span(sum)}`).join(", ");
    return html("div", {},
        svg("svg", { width: "100%", height: 52, role: "img", "aria-label": `The last 24 hours: ${words}` },
            svg("defs", {}, svg("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("rect", { class: "hatch", width: 2, height: 6 }))),
            ...bars, ...labels),
        html("ul", { class: "legend" }, ...totals.map(([state, sum]) => html("li", {}, svg("svg", { width: 22, height: 12, "aria-hidden": "true" }, svg("rect", { class: `day ${state}`, x: 1, y: 1, width: 20, height: 10 })), `${meanings[state]}, ${span(sum)}`))));
}
