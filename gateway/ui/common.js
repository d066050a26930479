// What all parts of the page need.
//
// Nothing that a model or a user wrote is ever taken as markup: texts go into
// the page as textContent. Nothing is loaded from elsewhere.

export const byId = (id) => document.getElementById(id);

// A new element with a class and a text, each of which may be left out.
export function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

export function bearer(token) {
  return token ? { Authorization: `Bearer ${token}` } : {};
}

// What an answer that is no success says.
export async function problemOf(response) {
  try {
    const body = await response.json();
    return `${response.status}: ${body.error.message}`;
  } catch {
    return `${response.status} ${response.statusText}`;
  }
}
