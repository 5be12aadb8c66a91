// Which round a person wants to see, and the answer that counts for it. Pure: `ask` brings a round.

export class RoundChoice {
    #ask;
    #wanted = null;
    /** How many questions were asked, and which of them was answered last. */
    #asked = 0;
    #answered = 0;

    /** ask: called with a session, brings its round; `null` where the broker keeps it no more. */
    constructor(ask) { this.#ask = ask; }

    /** The session that a person has chosen; `null` for the last one, whichever that is. */
    get wanted() { return this.#wanted; }

    choose(session) { this.#wanted = session; }

    /**
     * The round to be shown; `null` where there is none. Where another one is chosen while the broker is asked, that one. One that the broker keeps no
     * more is chosen no more.
     *
     * sessions: the device's, the last one at the end.
     */
    async round(sessions) {
        for (;;) {
            const wanted = this.#wanted;
            const isKept = wanted === null || sessions.includes(wanted);
            const session = isKept ? wanted ?? sessions[sessions.length - 1] : undefined;
            const number = this.#asked += 1;
            const round = session === undefined ? null : await this.#ask(session);
            // An answer for an older choice, or one that a newer answer has overtaken, says nothing of what is wanted now.
            if (this.#wanted !== wanted || number < this.#answered)
                continue;
            this.#answered = number;
            if (round || wanted === null)
                return round;
            this.#wanted = null;
        }
    }
}
