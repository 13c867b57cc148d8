// Asks the server; every error is a Problem with the server's own message.

const KEY = "contextpool-token";

export class Problem extends Error {
  constructor(status, error) {
    super(error?.message ?? `the server answered ${status}`);
    this.status = status;
    this.items = error?.items ?? [];
  }
}

let askForToken = async () => null;
export function onTokenNeeded(ask) {
  askForToken = ask;
}

function address(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value === null || value === undefined || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) query.append(name, String(one));
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

async function problemOf(response) {
  try {
    return new Problem(response.status, (await response.json()).error);
  } catch {
    return new Problem(response.status, null);
  }
}

async function send(path, parameters, options) {
  for (;;) {
    const token = sessionStorage.getItem(KEY);
    const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
    let response;
    try {
      response = await fetch(address(path, parameters), { ...options, headers });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem(0, { message: "The server cannot be reached." });
    }
    if (response.ok) return response.json();
    if (response.status !== 401) throw await problemOf(response);
    sessionStorage.removeItem(KEY);
    const given = await askForToken(Boolean(token));
    if (!given) throw await problemOf(response);
    sessionStorage.setItem(KEY, given);
  }
}

export const get = (path, parameters = {}, signal = undefined) => send(path, parameters, { signal });

// What is left out of a body is null or empty.
export function post(path, content, signal = undefined) {
  const given = Object.fromEntries(Object.entries(content).filter(([, value]) => value !== null && value !== ""));
  return send(path, {}, { method: "POST", body: JSON.stringify(given), headers: { "Content-Type": "application/json" }, signal });
}

export const sendFile = (path, parameters, file) =>
  send(path, parameters, { method: "POST", body: file, headers: { "Content-Type": "application/octet-stream" } });

// Only the newest call of a kind counts: an earlier one is given up.
export function newest(ask = get) {
  let controller = null;
  return async (path, parameters) => {
    controller?.abort();
    controller = new AbortController();
    return ask(path, parameters, controller.signal);
  };
}

export const wasAborted = (error) => error.name === "AbortError";
