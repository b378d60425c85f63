// The aggregators by zone, and how long ago each reported.

import { plural, span } from '../data/format';
import { Mark } from './top';
import type { Aggregator, Fleet } from '../data/wire';

/** An age that is worth a look: reports come twice a second. */
const LATE_S = 3;

export function Zones({ fleet }: { fleet: Fleet }) {
  const { aggregators, clients } = fleet.status;
  const more = fleet.aggregators_total - aggregators.length;
  return (
    <section class="zones" aria-labelledby="zones">
      <h2 id="zones">Zones</h2>
      {aggregators.length === 0 ? (
        <p>No aggregator has reported yet: <code>plimsoll aggregator --zone ZONE --controller URL</code> starts one.</p>
      ) : (
        <>
          <p class="muted">{plural(fleet.aggregators_total, 'aggregator')}, {plural(clients, 'client')} connected</p>
          <table>
            <thead>
              <tr><th scope="col">Zone</th><th scope="col">Aggregator</th><th scope="col">State</th><th scope="col" class="number">Last report</th></tr>
            </thead>
            <tbody>
              {aggregators.map((it) => (
                <tr key={`${it.zone}/${it.name}`}>
                  <td>{it.zone}</td><th scope="row">{it.name}</th><td><State of={it} /></td>
                  <td class="number">{it.last_report_s < LATE_S ? 'now' : `${span(it.last_report_s)} ago`}</td>
                </tr>
              ))}
            </tbody>
          </table>
          {more > 0 && <p class="muted">and {plural(more, 'aggregator')} more without a fault</p>}
        </>
      )}
    </section>
  );
}

function State({ of }: { of: Aggregator }) {
  if (of.expired) return <Mark severity="critical">expired, its share is released</Mark>;
  if (of.name_conflict) return <Mark severity="critical">two processes with this name</Mark>;
  if (of.stale) return <Mark severity="critical">stale</Mark>;
  if (!of.connected) return <Mark severity="warning">not connected</Mark>;
  if (of.killed_locally > 0) return <Mark severity="warning">{plural(of.killed_locally, 'client')} killed by file</Mark>;
  return <>connected</>;
}
