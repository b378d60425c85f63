// The session: a token that only this page's memory holds, and the calls that present it. It is in no address, no cookie and
// no storage, so that nothing but this page can send it.

let token: string | null = null;

/** A request that was not carried out, with the sentence of the controller. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    text: string,
  ) {
    super(text);
  }
}

export function signIn(typed: string | null): void {
  token = typed === null || typed.trim() === '' ? null : typed.trim();
}

export async function open(path: string, options: RequestInit = {}): Promise<Response> {
  const headers = new Headers(options.headers);
  if (token !== null) headers.set('authorization', `Bearer ${token}`);
  const answer = await fetch(path, { ...options, headers, cache: 'no-store', credentials: 'omit', redirect: 'error' });
  if (!answer.ok) throw new Refused(answer.status, await sentence(answer));
  return answer;
}

export async function get<T>(path: string, parameters: Record<string, string | number> = {}): Promise<T> {
  const query = new URLSearchParams(Object.entries(parameters).map(([key, value]) => [key, String(value)]));
  const answer = await open(query.size > 0 ? `${path}?${query}` : path, { signal: AbortSignal.timeout(10_000) });
  return answer.json() as Promise<T>;
}

export async function post<T>(path: string, body: unknown): Promise<T> {
  const answer = await open(path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(15_000),
  });
  return answer.json() as Promise<T>;
}

/** What to tell a person of any failure. */
export function reason(error: unknown): string {
  if (error instanceof Refused) return error.message;
  const name = error instanceof Error ? error.name : '';
  if (name === 'TimeoutError') return 'the controller did not answer in time';
  return `no answer from the controller at ${location.host}: it is stopped, or the network between is cut`;
}

async function sentence(answer: Response): Promise<string> {
  const text = await answer.text();
  try {
    const { error } = JSON.parse(text) as { error?: unknown };
    if (typeof error === 'string') return error;
  } catch {
    // A proxy may answer with a page of its own.
  }
  return text.trim().slice(0, 300) || `the answer was ${answer.status}`;
}
