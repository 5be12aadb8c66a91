// The devices on the screen. Only the rows in view are elements, but the keys move through all devices.

import { at, html, offer, write } from "../shared_device/dom.js";
import { visible } from "../shared_device/entries.js";
import { say } from "../shared_device/texts.js";
import { clock } from "../shared_device/words.js";
import { found, nameOf, networkOf, noteOf, reportOf, signedInOf, stateOf, states } from "./rows.js";

const columns = ["device", "state", "signedIn", "network", "lastReport", "groups", "notes"];

export class DeviceList {
    #rows = new Map();
    #shown = [];
    /** The name of the device that the keys have reached or that is open. */
    #active = null;
    #now;
    #open;
    #box = at("device-list");
    #head = html("div", { role: "row", class: "grid-row head", "aria-rowindex": 1 }, ...columns.map(name => html("span", { role: "columnheader" }, say(`fact.${name}`))));
    #space = html("div", { role: "rowgroup", class: "space" });

    /** now: returns the controller's time, in seconds since 1970. open: called with the name of a device. */
    constructor(now, open) {
        this.#now = now;
        this.#open = open;
        this.#box.append(html("div", { role: "rowgroup", class: "heads" }, this.#head), this.#space);
        this.#box.addEventListener("scroll", () => this.#draw());
        this.#box.addEventListener("keydown", event => this.#press(event));
        this.#box.addEventListener("click", event => {
            const name = event.target.closest("[data-name]")?.dataset.name;
            if (name !== undefined)
                this.#choose(name);
        });
        new ResizeObserver(() => this.#draw()).observe(this.#box);
        offer(at("device-state"), [["", say("any")], ...Object.keys(states).map(state => [state, nameOf({ state })])]);
        for (const control of ["device-text", "device-state"])
            at(control).addEventListener("input", () => this.show(this.#rows));
    }

    /** rows: by name. */
    show(rows) {
        this.#rows = rows;
        this.#shown = found([...rows.values()], { text: at("device-text").value, state: at("device-state").value });
        const [shown, count] = [this.#shown.length, rows.size];
        write(at("device-count"), shown === count ? say("devices.count", { count }) : say("devices.found", { found: shown, count }));
        this.#draw();
    }

    focus() { this.#box.focus(); }

    #choose(name) {
        this.#active = name;
        this.#draw();
        this.#open(name);
    }

    get #rowHeight() { return parseFloat(getComputedStyle(this.#box).getPropertyValue("--row")) * parseFloat(getComputedStyle(document.documentElement).fontSize) || 36; }

    #press(event) {
        const place = this.#shown.findIndex(row => row.name === this.#active);
        const page = Math.max(1, Math.floor(this.#box.clientHeight / this.#rowHeight) - 2);
        const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
        if (event.key === "Enter" && place >= 0) {
            event.preventDefault();
            this.#choose(this.#active);
        } else if (event.key in steps && this.#shown.length && !event.altKey && !event.ctrlKey && !event.metaKey) {
            event.preventDefault();
            const next = place < 0 ? (event.key === "End" ? this.#shown.length - 1 : 0) : Math.min(this.#shown.length - 1, Math.max(0, place + steps[event.key]));
            this.#active = this.#shown[next].name;
            // The sticky head covers the first row in view.
            const [top, height, head] = [next * this.#rowHeight, this.#rowHeight, this.#head.offsetHeight];
            if (top < this.#box.scrollTop)
                this.#box.scrollTop = top;
            else if (top + height + head > this.#box.scrollTop + this.#box.clientHeight)
                this.#box.scrollTop = top + height + head - this.#box.clientHeight;
            this.#draw();
        }
    }

    #draw() {
        const [height, now] = [this.#rowHeight, this.#now()];
        const { first, end } = visible(this.#shown.length, height, this.#box.scrollTop, this.#box.clientHeight);
        this.#space.style.height = `${Math.max(1, this.#shown.length) * height}px`;
        this.#box.setAttribute("aria-rowcount", String(this.#shown.length + 1));
        const rows = this.#shown.slice(first, end).map((row, index) => this.#row(row, first + index, height, now));
        if (!rows.length)
            rows.push(html("div", { role: "row", class: "grid-row empty dim" }, html("span", { role: "gridcell" }, say(this.#rows.size ? "devices.noMatch" : "devices.none"))));
        this.#space.replaceChildren(...rows);
        const active = rows.find(row => row.dataset.name === this.#active);
        if (active)
            this.#box.setAttribute("aria-activedescendant", active.id);
        else
            this.#box.removeAttribute("aria-activedescendant");
    }

    #row(row, place, height, now) {
        const state = states[stateOf(row)];
        const note = noteOf(row, now);
        const isActive = row.name === this.#active;
        const drawn = html("div", { role: "row", id: `device-${place}`, class: `grid-row${isActive ? " active" : ""}`, "aria-rowindex": place + 2, "aria-selected": String(isActive), "data-name": row.name },
            html("span", { role: "gridcell", class: "device" }, row.name),
            html("span", { role: "gridcell", class: `state ${state.style}` }, html("span", { "aria-hidden": "true" }, `${state.sign} `), nameOf(row)),
            html("span", { role: "gridcell", class: "session", title: signedInOf(row) }, signedInOf(row)), html("span", { role: "gridcell", class: "network" }, networkOf(row)),
            html("span", { role: "gridcell", class: "when" }, reportOf(row, now)),
            html("span", { role: "gridcell", class: "groups" }, row.groups.join(" ")), html("span", { role: "gridcell", class: "note", title: note || null }, note));
        drawn.style.top = `${place * height}px`;
        return drawn;
    }
}
