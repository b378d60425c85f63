// The answer to why a tenant is refused, and what would help.

import { useEffect, useState } from 'preact/hooks';
import { clock, percent, rate, refused } from '../data/format';
import { get, reason } from '../data/session';
import type { Refusals, Why } from '../data/wire';

const AGAIN_MS = 3_000;

export function WhyAnswer({ tenant, bucket, at }: { tenant: string; bucket: string; at: number }) {
  const [why, setWhy] = useState<Why | null>(null);
  const [failed, setFailed] = useState<string | null>(null);
  const [asked, setAsked] = useState(0);
  useEffect(() => {
    let again: ReturnType<typeof setTimeout>;
    get<Why>('/why', { tenant, bucket }).then(
      (answer) => (setWhy(answer), setFailed(null)),
      (error) => {
        setFailed(reason(error));
        // A controller that has just started has an answer soon.
        again = setTimeout(() => setAsked((times) => times + 1), AGAIN_MS);
      },
    );
    return () => clearTimeout(again);
  }, [tenant, bucket, asked]);
  return (
    <>
      {failed !== null && <p role="alert" class="sentence warning">No answer: {failed}.</p>}
      {why === null && failed === null && <p>Asking the controller.</p>}
      {why !== null && (
        <div class="why">
          <p class="answer">{why.summary}</p>
          <p>
            Limit: {rate(why.limit_rps)} ({why.limit_source}). {why.refused_since_s === null ? '' : `Refused since ${clock(why.refused_since_s, at)}. `}
            {why.allocated_rps === null ? '' : `The law lets ${rate(why.allocated_rps)} requests/s pass now.`}
          </p>
          {why.remedies.length > 0 && (
            <>
              <h3>What would help</h3>
              <p class="muted">Shares by the law for the load of now; those above and below are counted over ten seconds.</p>
              <ul>
                {why.remedies.map((it) => (
                  <li key={it.change}><code>{it.change}</code>: refused {percent(it.refused_after)} in place of {percent(it.refused_before)}{it.others.map((of) => `; ${of.tenant} ${percent(of.refused_after)} in place of ${percent(of.refused_before)}`)}</li>
                ))}
              </ul>
            </>
          )}
          {why.others.length > 0 && (
            <table>
              <caption>Beside it, in the same ten seconds</caption>
              <thead><tr><th scope="col">Tenant</th><th scope="col" class="number">Weight</th><th scope="col" class="number">Requests/s</th><th scope="col" class="number">Refused</th></tr></thead>
              <tbody>
                {why.others.map((it) => (
                  <tr key={it.tenant}>
                    <th scope="row">{it.tenant}</th><td class="number">{rate(it.weight)}</td>
                    <td class="number">{rate(it.requests.span_s > 0 ? it.requests.asked / it.requests.span_s : null)}</td><td class="number">{share(it.requests)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
        </div>
      )}
      <p class="actions"><button type="button" onClick={() => setAsked(asked + 1)}>Ask again</button></p>
    </>
  );
}

function share(of: Refusals): string {
  return percent(of.asked === 0 ? null : refused(of) / of.asked);
}
