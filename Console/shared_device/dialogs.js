// The two dialogs in which the user confirms a change.

import { at, write } from "./dom.js";
import { say } from "./texts.js";

/**
 * Opens a dialog. Submitting it calls `act`. If that succeeds, the dialog closes; if it fails, the dialog stays open and
 * shows the error. If the dialog was opened again for another action in between, it does not show the result.
 */
export function ask(name, act) {
    const dialog = at(`${name}-dialog`);
    const [form, problem] = [dialog.querySelector("form"), at(`${name}-error`)];
    const submit = form.querySelector("[type=submit]");
    write(problem, "");
    submit.disabled = false;
    const submitted = async event => {
        event.preventDefault();
        submit.disabled = true;
        write(problem, "");
        try {
            await act();
            if (form.onsubmit === submitted)
                dialog.close();
        } catch (error) {
            if (form.onsubmit === submitted)
                write(problem, error?.message || say("broker.gone"));
        } finally {
            if (form.onsubmit === submitted)
                submit.disabled = false;
        }
    };
    form.onsubmit = submitted;
    form.querySelector(".cancel").onclick = () => dialog.close();
    dialog.showModal();
}
