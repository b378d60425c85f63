// A policy that waits: why it is held back, what differs, and what it would refuse.

import { useEffect, useState } from 'preact/hooks';
import type { Ask } from './dialogs';
import { clock, percent, rate } from '../data/format';
import { get, reason } from '../data/session';
import type { Fleet, Forecast, Policies, Shifts } from '../data/wire';

export function Pending({ held, at, ask }: { held: NonNullable<Fleet['held']>; at: number; ask(ask: Ask): void }) {
  const [read, setRead] = useState<{ policies: Policies; forecast: Forecast | null } | null>(null);
  const [failed, setFailed] = useState<string | null>(null);
  useEffect(() => {
    let isOver = false;
    Promise.all([get<Policies>('/policy'), get<Forecast | null>('/policy/forecast')])
      .then(([policies, forecast]) => isOver || (setRead({ policies, forecast }), setFailed(null)))
      .catch((error) => isOver || setFailed(reason(error)));
    return () => { isOver = true; };
  }, [held.hash]);
  return (
    <section class="pending" aria-labelledby="pending">
      <div class="head">
        <h2 id="pending">Pending policy</h2>
        <span class="space" />
        <button onClick={() => ask({ kind: 'apply', hash: held.hash })}>Apply…</button>
      </div>
      <p>Policy <code>{held.hash}</code> is held back since {clock(held.since_s, at)}: {held.reasons.join('; ')}.</p>
      {failed !== null && <p class="sentence warning">Its differences cannot be shown: {failed}.</p>}
      {read?.policies.held?.hash === held.hash && (
        <pre class="diff" tabIndex={0} aria-label="Differences">
          {read.policies.held.differences.map(({ path, from, to }) => {
            const mark = from === null ? '+' : to === null ? '-' : '~';
            const values = from === null ? to : to === null ? from : `${from} → ${to}`;
            return <span key={path} class={mark === '+' ? 'added' : mark === '-' ? 'removed' : ''}>{`${mark} ${path}: ${values}\n`}</span>;
          })}
        </pre>
      )}
      {read !== null && <Effect forecast={read.forecast} />}
    </section>
  );
}

function Effect({ forecast }: { forecast: Forecast | null }) {
  if (forecast === null) return null;
  const { buckets, refused_more, refused_less } = forecast;
  const all = [buckets, refused_more, refused_less];
  if (all.every((shifts) => shifts.largest.length === 0)) return <p>On the traffic of the last minutes it would change no refusal.</p>;
  return (
    <table>
      <caption>Effect on the traffic of the last minutes</caption>
      <thead>
        <tr><th scope="col">Bucket or tenant</th><th scope="col" class="number">Offered/s</th><th scope="col" class="number">Refused now</th><th scope="col" class="number">Then</th></tr>
      </thead>
      <tbody>{all.map(rows)}</tbody>
    </table>
  );
}

function rows({ largest, more }: Shifts) {
  return [
    ...largest.map((it) => (
      <tr key={`${it.bucket} ${it.tenant}`}>
        <th scope="row">{it.tenant === null ? it.bucket : `${it.tenant} in ${it.bucket}`}</th>
        <td class="number">{rate(it.offered_rps)}</td>
        <td class="number">{percent(it.before)}</td>
        <td class="number">{it.after > it.before ? <strong class="refused">{percent(it.after)}</strong> : percent(it.after)}</td>
      </tr>
    )),
    more > 0 ? <tr key="more"><td colSpan={4}>and {more} more</td></tr> : null,
  ];
}
