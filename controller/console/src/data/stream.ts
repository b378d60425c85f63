// Follows the stream of the controller. It is read with `fetch`, which can send a token, where EventSource cannot. A stream
// that is cut is opened again after a growing pause, and meanwhile the page is told since when its values are old.

import { Refused, get, open, reason } from './session';
import type { Frame, Hello } from './wire';

/** Without a message for so long a stream is taken for cut: the controller sends one each second. */
const SILENCE_MS = 5_000;
const PAUSE_MS = 1_000;
const PAUSE_MAX_MS = 15_000;

export interface View {
  search: string;
  sort: 'worst' | 'name' | 'offered';
  page: number;
  bucket: string | null;
  tenant: string;
  tenant_page: number;
}

export type Connection =
  | { kind: 'connecting' }
  | { kind: 'live' }
  /** Values are of an earlier time: why, and when the next attempt is made, by this machine's clock. */
  | { kind: 'cut'; text: string; retryAt: number }
  | { kind: 'standby'; text: string; leader: string | null; retryAt: number }
  /** Only another token helps. */
  | { kind: 'refused'; text: string };

export interface Listener {
  hello(hello: Hello): void;
  frame(frame: Frame): void;
  connection(connection: Connection): void;
}

/** Follows a view until `stop`; `now` ends a pause. */
export function follow(view: View, to: Listener): { stop(): void; now(): void } {
  const stopped = new AbortController();
  let wake = () => {};
  const run = async () => {
    let pause = PAUSE_MS;
    for (;;) {
      const began = await read(view, to, stopped.signal);
      if (stopped.signal.aborted) return;
      if (began.done && began.live) {
        // The controller ends each stream after a minute, in order to check the token again.
        pause = PAUSE_MS;
        continue;
      }
      if (began.live) pause = PAUSE_MS;
      const wait = pause * (0.8 + 0.4 * Math.random());
      const next = await told(began.error, Date.now() + wait);
      if (stopped.signal.aborted) return;
      to.connection(next);
      if (next.kind === 'refused') return;
      await new Promise<void>((resolve) => {
        wake = resolve;
        setTimeout(resolve, wait);
      });
      pause = Math.min(2 * pause, PAUSE_MAX_MS);
      if (stopped.signal.aborted) return;
    }
  };
  void run();
  return { stop: () => (stopped.abort(), wake()), now: () => wake() };
}

/** Reads one stream to its end. */
async function read(view: View, to: Listener, stopped: AbortSignal) {
  const cut = new AbortController();
  const abort = () => cut.abort();
  stopped.addEventListener('abort', abort);
  let silence = setTimeout(abort, SILENCE_MS);
  let live = false;
  try {
    const answer = await open(`/console/stream?${parameters(view)}`, { signal: cut.signal });
    const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    for (;;) {
      const part = await reader?.read();
      if (part === undefined || part.done) return { done: true, live, error: null };
      clearTimeout(silence);
      silence = setTimeout(abort, SILENCE_MS);
      const messages = (text + part.value).split('\n\n');
      text = messages.pop() ?? '';
      for (const message of messages) {
        const data = message.slice(message.indexOf('data: ') + 6);
        if (stopped.aborted) break;
        if (message.startsWith('event: hello')) {
          to.hello(JSON.parse(data) as Hello);
          continue;
        }
        if (!live) to.connection({ kind: 'live' });
        live = true;
        to.frame(JSON.parse(data) as Frame);
      }
    }
  } catch (error) {
    return { done: false, live, error };
  } finally {
    clearTimeout(silence);
    stopped.removeEventListener('abort', abort);
    cut.abort();
  }
}

async function told(error: unknown, retryAt: number): Promise<Connection> {
  if (!(error instanceof Refused)) {
    const isSilent = error instanceof DOMException && error.name === 'AbortError';
    const text = isSilent ? `the controller at ${location.host} has sent nothing for 5 s` : reason(error);
    return { kind: 'cut', text, retryAt };
  }
  if (error.status === 421) {
    const members = await get<{ members: { leads: boolean; admin: string }[] }>('/members').catch(() => null);
    const leader = members?.members.find((member) => member.leads)?.admin ?? null;
    return { kind: 'standby', text: error.message, leader, retryAt };
  }
  return [401, 403, 429].includes(error.status)
    ? { kind: 'refused', text: error.message }
    : { kind: 'cut', text: error.message, retryAt };
}

function parameters({ bucket, ...view }: View): URLSearchParams {
  const all = Object.entries({ ...view, ...(bucket === null ? {} : { bucket }) });
  return new URLSearchParams(all.map(([key, value]) => [key, String(value)]));
}
