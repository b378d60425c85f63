// What happened lately, the newest first.

import { useEffect, useRef, useState } from 'preact/hooks';
import { clock } from '../data/format';
import { get, reason } from '../data/session';
import { Mark } from './top';
import type { FleetEvent } from '../data/wire';

const SPAN_MS = 6 * 3_600_000;
const EVERY_MS = 3_000;
const KEPT_MAX = 200;
const SHOWN = 12;

export function Events({ at, isLive }: { at: number; isLive: boolean }) {
  const [events, setEvents] = useState<FleetEvent[]>([]);
  const [failed, setFailed] = useState<string | null>(null);
  const [isAll, setAll] = useState(false);
  const last = useRef(0);
  useEffect(() => {
    if (!isLive) return;
    let isOver = false;
    let timer: ReturnType<typeof setTimeout>;
    const read = async () => {
      try {
        for (let more = !document.hidden; more && !isOver; ) {
          const page = await get<{ events: FleetEvent[]; more: boolean }>('/events', { since: at * 1000 - SPAN_MS, after: last.current });
          last.current = page.events.at(-1)?.number ?? last.current;
          more = page.more;
          if (page.events.length > 0) setEvents((before) => [...page.events.reverse(), ...before].slice(0, KEPT_MAX));
        }
        setFailed(null);
      } catch (error) {
        setFailed(reason(error));
      }
      if (!isOver) timer = setTimeout(read, EVERY_MS);
    };
    void read();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [isLive]);
  return (
    <section class="events" aria-labelledby="events">
      <h2 id="events">Events</h2>
      {failed !== null && <p class="sentence warning">Events are not current: {failed}.</p>}
      {events.length === 0 && <p class="muted">Nothing happened in the last six hours.</p>}
      <ul>
        {events.slice(0, isAll ? KEPT_MAX : SHOWN).map((event) => (
          <li key={event.number}>
            <time dateTime={new Date(event.time_ms).toISOString()}>{clock(event.time_ms / 1000, at)}</time>
            <span class="what">
              {event.severity !== 'info' && <><Mark severity={event.severity} /> </>}
              {event.text}
              {event.by !== undefined || event.why !== undefined ? <span class="muted"> ({[event.by, event.why].filter(Boolean).join(': ')})</span> : null}
            </span>
          </li>
        ))}
      </ul>
      {events.length > SHOWN && <button onClick={() => setAll(!isAll)}>{isAll ? 'Fewer' : `All ${events.length}`}</button>}
    </section>
  );
}
