// Loads the texts of the page, in the language that the user has chosen in Cockpit, or else in the browser.

import { languageOf, say, useTexts } from "./texts.js";

export async function loadTexts() {
    const chosen = document.cookie.match(/(?:^|; )CockpitLang=([^;]+)/)?.[1];
    const { language, locale } = languageOf([...chosen ? [chosen] : [], ...navigator.languages]);
    const response = await fetch(new URL(`texts.${language}.json`, import.meta.url));
    useTexts(await response.json(), locale);
    document.documentElement.lang = language;
    for (const node of document.querySelectorAll("[data-text]"))
        node.textContent = say(node.dataset.text);
}
