// The first lines: the verdict, how old the values are, who is signed in, the kill switch, and the problems with remedies.

import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { Shown } from '../app';
import type { Ask } from './dialogs';
import { clock, plural, span } from '../data/format';
import type { Connection } from '../data/stream';
import type { Fleet, Hello, Severity } from '../data/wire';

/** A difference of two clocks that is told. */
const SKEW_S = 5;

const MARKS: Record<Severity, string> = { critical: '■', warning: '▲', info: '●' };

export function Mark({ severity, children }: { severity: Severity; children?: ComponentChildren }) {
  return (
    <span class={`mark ${severity}`}>
      <span aria-hidden="true">{MARKS[severity]}</span> {children ?? severity}
    </span>
  );
}

interface TopProps {
  shown: Shown | null;
  connection: Connection;
  caller: Hello | null;
  ask(ask: Ask): void;
  retry(): void;
  leave(): void;
}

export function Top({ shown, connection, caller, ask, retry, leave }: TopProps) {
  const status = shown?.fleet.status;
  const worst = status?.problems[0]?.severity ?? 'info';
  const isOld = connection.kind !== 'live';
  return (
    <header class="top">
      <div class="bar">
        <strong class="brand">Plimsoll</strong>
        <span class="muted">{shown === null ? location.host : `epoch ${shown.fleet.status.epoch} · ${clock(shown.fleet.at_s, shown.fleet.at_s)}`}</span>
        <span class="space" />
        {caller !== null && <span class="muted">{caller.name === 'loopback' ? 'this machine' : caller.name} ({caller.role})</span>}
        {caller !== null && caller.name !== 'loopback' && <button onClick={leave}>Sign out</button>}
        {shown !== null && !shown.fleet.status.killed && (
          <button class="danger" onClick={() => ask({ kind: 'kill', bucket: null })}>Kill switch…</button>
        )}
      </div>
      {status !== undefined && (
        <h1 class={`verdict ${isOld ? 'stale' : worst}`}>
          <Mark severity={isOld ? 'warning' : worst}>{''}</Mark>
          {isOld && shown !== null ? `As of ${clock(shown.fleet.at_s, shown.arrivedMs / 1000)}: ` : ''}
          {status.verdict}
        </h1>
      )}
      {status !== undefined && status.problems.length > 0 && <p class="summary">{status.summary}</p>}
      <State shown={shown} connection={connection} retry={retry} />
      {shown !== null && <Skew shown={shown} />}
      <Told fleet={shown?.fleet} />
    </header>
  );
}

/** Says in a sentence what the connection is, unless it is live. */
function State({ shown, connection, retry }: Pick<TopProps, 'shown' | 'connection' | 'retry'>) {
  const now = useNow(connection.kind !== 'live');
  if (connection.kind === 'live') return null;
  const old = shown === null ? '' : ` The values below are ${span((now - shown.arrivedMs) / 1000)} old.`;
  if (connection.kind === 'refused') {
    return old === '' ? null : <p role="alert" class="sentence critical">The stream ended, because the token is not accepted.{old}</p>;
  }
  if (connection.kind === 'connecting') {
    return <p class="sentence">Asking the controller at {location.host} since {span((now - BEGAN) / 1000)}.{old}</p>;
  }
  const wait = Math.max(0, Math.ceil((connection.retryAt - now) / 1000));
  return (
    <div role="alert" class={`sentence ${connection.kind === 'cut' ? 'critical' : 'warning'}`}>
      <p>
        {connection.kind === 'standby' && connection.leader !== null ? 'This controller stands by' : capital(connection.text)}.{old} <strong>Instances keep deciding from memory meanwhile.</strong>
        {connection.kind === 'standby' && <Leader address={connection.leader} />}
      </p>
      <button onClick={retry}>Try now</button>
      <span class="muted" aria-hidden="true">{wait > 0 ? `next attempt in ${wait} s` : 'trying'}</span>
    </div>
  );
}

const BEGAN = Date.now();

function Leader({ address }: { address: string | null }) {
  const isLink = address !== null && /^https?:\/\//.test(address);
  return isLink ? <> Open <a href={address}>{address}</a>, which leads.</> : null;
}

function Skew({ shown }: { shown: Shown }) {
  const off = Math.round(shown.arrivedMs / 1000 - shown.fleet.at_s);
  if (Math.abs(off) <= SKEW_S) return null;
  return (
    <p class="sentence warning">
      The clock of this machine is {span(Math.abs(off))} {off > 0 ? 'ahead of' : 'behind'} that of the controller. All times
      here are the controller's; one of the two is wrong.
    </p>
  );
}

/** Tells a screen reader when the problems or the words of the verdict change, and not each number. */
function Told({ fleet }: { fleet: Fleet | undefined }) {
  const [text, setText] = useState('');
  const words = fleet?.status.verdict.replace(/[\d.]+/g, '');
  const key = fleet?.status.problems.map((it) => `${it.severity} ${it.subject}`).concat(words ?? '').join('|');
  useEffect(() => setText(fleet?.status.verdict ?? ''), [key]);
  return <p class="hidden" role="status">{text}</p>;
}

export function Problems({ fleet, ask }: { fleet: Fleet; ask(ask: Ask): void }) {
  const { held, kill, in_shadow, killed_buckets, status } = fleet;
  const needed = status.killed || in_shadow > 0 || killed_buckets > 0;
  if (status.problems.length === 0 && !needed) return null;
  return (
    <section class="problems" aria-labelledby="problems">
      <h2 id="problems">Problems</h2>
      <ul>
        {status.problems.map((it) => (
          <li key={`${it.subject} ${it.remedy}`}>
            <Mark severity={it.severity} />
            <div>
              {!status.verdict.endsWith(it.text) && <p>{prose(it.text)}</p>}
              <p class="remedy">{prose(it.remedy)}</p>
            </div>
          </li>
        ))}
      </ul>
      {status.killed && (
        <p class="actions">
          {kill.command !== null &&
            `Killed since ${clock(kill.command.since_s, fleet.at_s)}${kill.command.by === null ? '' : ` by ${kill.command.by}`}: ${kill.command.reason ?? 'no reason known'}. `}
          {kill.by_file ? 'The policy file orders the kill: remove it there.' : <button onClick={() => ask({ kind: 'end-kill', bucket: null })}>End the kill…</button>}
        </p>
      )}
      {held !== null && <p class="actions"><a href="#pending">Pending policy: its differences, its effect, and how to apply it</a></p>}
      {killed_buckets > 0 && <p>{plural(killed_buckets, 'bucket')} killed on their own: the list has them first.</p>}
      {in_shadow > 0 && (
        <p class="actions">
          {in_shadow === 1 ? '1 entry is' : `${in_shadow} entries are`} in shadow since a kill that has ended: nothing is refused there.{' '}
          <button onClick={() => ask({ kind: 'resume' })}>Resume…</button>
        </p>
      )}
    </section>
  );
}

/** This machine's time, each second while it is needed. */
function useNow(isNeeded: boolean): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    if (!isNeeded) return;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [isNeeded]);
  return now;
}

/** Shows what is between backticks as code. */
function prose(text: string) {
  return text.split('`').map((part, at) => (at % 2 === 1 ? <code key={at}>{part}</code> : part));
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
