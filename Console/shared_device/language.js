// Loads the texts of the page, in the language that the user has chosen in Cockpit, or else in the browser.

import { languageOf, say, useTexts } from "./texts.js";

export async function loadTexts() {
    const chosen = document.cookie.match(/(?:^|; )CockpitLang=([^;]+)/)?.[1];
    // The page works without texts, too: it then shows their keys.
    for (const { language, locale } of [languageOf([...chosen ? [chosen] : [], ...navigator.languages]), { language: "en", locale: "en" }]) {
        const response = await fetch(new URL(`texts.${language}.json`, import.meta.url)).catch(() => null);
        const texts = response?.ok ? await response.json().catch(() => null) : null;
        if (!texts)
            continue;
        useTexts(texts, locale);
        document.documentElement.lang = language;
        break;
    }
    for (const node of document.querySelectorAll("[data-text]"))
        node.textContent = say(node.dataset.text);
}
