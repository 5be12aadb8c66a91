// The log on the screen. Only the rows in view are elements, whatever the length of the log.

import { html, at, offer, write } from "./dom.js";
import { filtered, merged, sessionOf, style, visible } from "./entries.js";
import { paragraph, say } from "./texts.js";
import { clock } from "./words.js";

export class LogList {
    #entries = [];
    #waiting = [];
    #shown = [];
    #isPaused = false;
    #name = key => key;
    #now = () => Date.now() / 1000;
    #box = at("log-lines");
    #space = html("ol", {});

    /** now: returns the device's time, in seconds since 1970. */
    constructor(now) {
        this.#now = now;
        this.#box.append(this.#space);
        this.#box.addEventListener("scroll", () => this.#draw());
        new ResizeObserver(() => this.#draw()).observe(this.#box);
        for (const control of ["log-text", "log-event", "log-app"])
            at(control).addEventListener("input", () => this.#show());
        at("log-pause").addEventListener("click", () => {
            this.#isPaused = !this.#isPaused;
            at("log-pause").setAttribute("aria-pressed", String(this.#isPaused));
            write(at("log-pause"), say(this.#isPaused ? "log.goOn" : "log.pause"));
            this.add(this.#waiting.splice(0));
        });
        this.#show();
    }

    get entries() { return this.#entries; }

    /** The number of times that the log was cleared. */
    run = 0;

    /** Forgets all entries, because the user of the page lost the right to see them. */
    clear() {
        this.run += 1;
        [this.#entries, this.#waiting, this.#shown] = [[], [], []];
        this.#show();
    }

    /** Sets the function that returns the name shown for an app's identifier. */
    rename(name) {
        this.#name = name;
        this.#show();
    }

    add(news) {
        if (this.#isPaused) {
            this.#waiting = merged(this.#waiting, news);
            return this.#tell();
        }
        if (!news.length)
            return this.#tell();
        this.#entries = merged(this.#entries, news);
        this.#show();
    }

    #tell() {
        const [found, count, waiting] = [this.#shown.length, this.#entries.length, this.#waiting.length];
        write(at("log-count"), paragraph(found === count ? say("log.count", { count }) : say("log.found", { found, count }), waiting && say("log.waiting", { count: waiting })));
    }

    #show() {
        const sorted = values => [...new Set(values)].filter(Boolean).sort();
        offer(at("log-event"), [["", say("any")], ...sorted(this.#entries.map(entry => entry.event)).map(event => [event, event])]);
        offer(at("log-app"), [["", say("any")], ...sorted(this.#entries.map(entry => entry.app)).map(app => [app, this.#name(app)])]);
        const before = this.#shown[0]?.sequence ?? 0;
        this.#shown = filtered(this.#entries, { text: at("log-text").value, event: at("log-event").value, app: at("log-app").value });
        // New entries come first. If the user has scrolled down, the rows in view keep their places.
        const added = this.#shown.findIndex(entry => entry.sequence <= before);
        if (this.#box.scrollTop > 0 && added > 0)
            this.#box.scrollTop += added * this.#rowHeight;
        this.#tell();
        this.#draw();
    }

    get #rowHeight() { return parseFloat(getComputedStyle(this.#box).getPropertyValue("--row")) * parseFloat(getComputedStyle(document.documentElement).fontSize) || 32; }

    #draw() {
        const height = this.#rowHeight;
        const { first, end } = visible(this.#shown.length, height, this.#box.scrollTop, this.#box.clientHeight);
        this.#space.style.height = `${this.#shown.length * height}px`;
        const now = this.#now();
        this.#space.replaceChildren(...this.#shown.slice(first, end).map((entry, index) => {
            const place = first + index;
            const row = html("li", { "aria-setsize": this.#shown.length, "aria-posinset": place + 1, title: entry.detail || null },
                html("span", { class: "when" }, clock(entry.at, now)), html("span", { class: `event ${style(entry.event)}` }, entry.event),
                html("span", { class: "session" }, sessionOf(entry.session)),
                html("span", { class: "what" }, [entry.app && this.#name(entry.app), entry.detail].filter(Boolean).join(" · ")));
            row.style.top = `${place * height}px`;
            return row;
        }));
        if (!this.#shown.length)
            this.#space.replaceChildren(html("li", { class: "dim" }, say(this.#entries.length ? "log.noMatch" : "log.empty")));
        at("log-lines").setAttribute("aria-label", say("log.label", { count: this.#shown.length }));
    }
}
