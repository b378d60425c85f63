// One bucket: its chart, why it refuses, its stage with the gate and the evidence, its tenants, and what one can do.

import { useEffect, useRef } from 'preact/hooks';
import { Chart } from './chart';
import type { Ask } from './dialogs';
import { NONE, clock, percent, plural, refused, span } from '../data/format';
import type { Past } from '../data/past';
import type { View } from '../data/stream';
import { Tenants } from './tenants';
import type { BucketDetail, Cohort, Refusals, Rollout } from '../data/wire';

interface Props {
  name: string;
  detail: BucketDetail | null;
  /** True if the controller was asked for this bucket and answers. */
  isAnswered: boolean;
  view: View;
  change(part: Partial<View>): void;
  past: Past;
  ask(ask: Ask): void;
  at: number;
}

export function Detail({ name, detail, isAnswered, view, change, past, ask, at }: Props) {
  const title = useRef<HTMLHeadingElement>(null);
  useEffect(() => title.current?.focus(), [name]);
  return (
    <section class="detail" aria-labelledby="detail">
      <div class="head">
        <h2 id="detail" ref={title} tabIndex={-1}>{name}</h2>
        <span class="space" />
        {detail !== null && !detail.row.killed && <button class="danger" onClick={() => ask({ kind: 'kill', bucket: name })}>Kill {name}…</button>}
        <button onClick={() => change({ bucket: null })}>Close</button>
      </div>
      {detail === null ? (
        <p>{isAnswered ? 'The controller knows no bucket of this name: it may have been removed from the policy.' : 'Waiting for the next second of values.'}</p>
      ) : (
        <>
          {detail.kill.killed && (
            <p class="sentence critical">
              Killed since {clock(detail.kill.command?.since_s ?? null, at)}: {detail.kill.command?.reason ?? 'no reason known'}.{' '}
              <button onClick={() => ask({ kind: 'end-kill', bucket: name })}>End the kill…</button>
            </p>
          )}
          <Chart name={name} points={past.of(name)} at={at} />
          <Reasons of={detail.status.refusals_10_s} />
          {detail.status.released_rps > 0 && <p>{Math.round(detail.status.released_rps)} requests/s of silent aggregators are divided among the others.</p>}
          {detail.status.clients_unapplied > 0 && <p>{plural(detail.status.clients_unapplied, 'client')} carry out less than this mode: a kill is known there alone.</p>}
          <Stages rollout={detail.rollout} ask={ask} at={at} />
          <Tenants detail={detail} view={view} change={change} ask={ask} />
        </>
      )}
    </section>
  );
}

/** The refusals of 10 s by reason, in a sentence. */
function Reasons({ of }: { of: Refusals }) {
  const share = (count: number) => count / Math.max(1, of.asked);
  const all: [string, number][] = [
    ['more than the limit is offered', of.cluster_overload],
    ['tenants are at limits of their own', of.tenant_limit],
    ['guards cut a burst', of.burst_guard],
    ['an exact quota is used up', of.quota],
    ['the refusal of a quota is remembered', of.quota_repeated],
  ];
  const reasons = all.filter(([, count]) => share(count) >= 0.0005).sort(([, one], [, other]) => other - one);
  if (of.asked === 0) return <p>No requests in 10 s.</p>;
  const would = share(of.would_refuse) >= 0.0005 ? ` ${percent(share(of.would_refuse))} would be refused, and are not.` : '';
  if (reasons.length === 0) return <p>Nothing refused in 10 s.{would}</p>;
  return (
    <p>
      {percent(share(refused(of)))} refused in 10 s: {reasons.map(([text, count]) => `${text} (${percent(share(count))})`).join(', ')}.{would}
    </p>
  );
}

function Stages({ rollout, ask, at }: { rollout: Rollout | null; ask(ask: Ask): void; at: number }) {
  if (rollout === null) return <p>No entry of the policy covers this bucket, so nothing limits it.</p>;
  const { entry, stage, next, gate, why, evidence, since } = rollout;
  const verdict = gate === 'pass' ? 'passes' : gate === 'fail' ? 'does not pass' : 'cannot be judged yet';
  return (
    <section aria-labelledby="stage">
      <h3 id="stage">Stage</h3>
      <ol class="stages">
        {(['shadow', 'canary', 'enforce'] as const).map((mode) => (
          <li key={mode} class={mode === stage ? 'chosen' : ''} aria-current={mode === stage ? 'step' : undefined}>{mode}</li>
        ))}
      </ol>
      <p>
        {since === null ? '' : `Since ${clock(since.at_s, at)} (${[since.cause, ...since.why].join(': ')}). `}
        {rollout.pending !== null && `The policy file wants ${rollout.pending}, which waits for the gate. `}
        {next !== null && gate !== null && `The gate to ${next} ${verdict}${why.length > 0 ? `: ${why.join('; ')}` : ''}.`}
        {next !== null && rollout.auto_promote && ' It is promoted by itself when the gate passes.'}
      </p>
      {next !== null && <Evidence of={evidence} stage={stage} />}
      <p class="actions">
        {next !== null && <button onClick={() => ask({ kind: 'promote', rollout })}>Promote to {next}…</button>}
        {stage !== 'shadow' && <button onClick={() => ask({ kind: 'abort', entry })}>Return to shadow…</button>}
      </p>
    </section>
  );
}

function Evidence({ of, stage }: { of: Rollout['evidence']; stage: string }) {
  const rows: [string, Cohort][] = stage === 'canary' ? [['canary', of.canary], ['the others', of.control]] : [['all', sum(of.canary, of.control)]];
  return (
    <table>
      <caption>Evidence of {span(of.with_data_ms / 1000)} with data</caption>
      <thead>
        <tr>
          <th scope="col">Instances</th><th scope="col" class="number">Number</th><th scope="col" class="number">Requests</th>
          <th scope="col" class="number">Refused</th><th scope="col" class="number">Would be</th><th scope="col" class="number">p99</th>
        </tr>
      </thead>
      <tbody>
        {rows.map(([name, cohort]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td class="number">{cohort.instances}</td>
            <td class="number">{cohort.offered.toLocaleString('en')}</td>
            <td class="number">{percent(cohort.offered > 0 ? cohort.refused / cohort.offered : null)}</td>
            <td class="number">{percent(cohort.offered > 0 ? cohort.would_dropped / cohort.offered : null)}</td>
            <td class="number">{cohort.p99_us === null ? NONE : `${(cohort.p99_us / 1000).toFixed(1)} ms`}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function sum(one: Cohort, other: Cohort): Cohort {
  return {
    offered: one.offered + other.offered,
    refused: one.refused + other.refused,
    would_dropped: one.would_dropped + other.would_dropped,
    instances: one.instances + other.instances,
    p99_us: one.p99_us === null ? other.p99_us : Math.max(one.p99_us, other.p99_us ?? 0),
  };
}
