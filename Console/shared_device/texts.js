// The texts of the pages in one language, and the forms of its numbers and times. Pure.

const languages = ["en", "de", "es", "tr", "zh-TW"];

let sentences = {};
/** The form of numbers and times, such as `de-AT`. */
let locale = "en";
let formats = new Map();

/**
 * The first of these language tags that has texts, and the form of its numbers and times; otherwise English. wanted: the
 * tags, the preferred one first. They may be malformed.
 */
export function languageOf(wanted) {
    for (const tag of wanted) {
        const [name, ...parts] = tag.toLowerCase().split(/[-_]/);
        // The script wins over the region: zh-Hans-HK is simplified, which is another language.
        const isTraditional = parts.includes("hant") || !parts.includes("hans") && parts.some(part => ["tw", "hk", "mo"].includes(part));
        const language = name === "zh" && isTraditional ? "zh-TW" : name;
        if (languages.includes(language))
            return { language, locale: /^[a-z]{2}-[a-z]{2}$/i.test(tag) ? tag : language };
    }
    return { language: "en", locale: "en" };
}

/** Sets the language of all texts. texts: by key; a text with a count has a form for each plural category. */
export function useTexts(texts, form) {
    [sentences, locale, formats] = [texts, form, new Map()];
}

function formatOf(kind, options) {
    const key = `${kind} ${JSON.stringify(options)}`;
    if (!formats.has(key))
        formats.set(key, new Intl[kind](locale, options));
    return formats.get(key);
}

/**
 * The text of this key, with values in the places of `{name}`. Numbers are written as the language does; a number that
 * names something, such as a session, is given as a string. `count` chooses the plural. A missing text is its key.
 */
export function say(key, values = {}) {
    const entry = Object.hasOwn(sentences, key) ? sentences[key] : key;
    const text = typeof entry === "string" ? entry : entry[formatOf("PluralRules").select(values.count)] ?? entry.other;
    return text.replace(/\{(\w+)\}/g, (place, name) => {
        const value = Object.hasOwn(values, name) ? values[name] : place;
        return typeof value === "number" ? decimal(value) : value;
    });
}

export const decimal = (value, digits = 0) => formatOf("NumberFormat", { minimumFractionDigits: digits, maximumFractionDigits: digits }).format(value);

/** A moment of the local clock, from seconds since 1970. The limit is that of `Date`. */
export const moment = (seconds, options) => Math.abs(seconds) <= 8.64e12 ? formatOf("DateTimeFormat", options).format(seconds * 1000) : "–";

export const listed = names => formatOf("ListFormat", { type: "conjunction" }).format(names);

/** Sentences as one text. Chinese has no blank between them. */
export const paragraph = (...parts) => parts.filter(Boolean).join(locale.startsWith("zh") ? "" : " ");
