// Orders to the fleet, each with its effect in words, a reason and a confirmation; and the answer to why.

import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { percent, rate } from '../data/format';
import { Refused, get, post, reason as told } from '../data/session';
import { WhyAnswer } from './why';
import type { Fleet, Hello, Mode, Returning, Role, Rollout } from '../data/wire';

export type Ask =
  | { kind: 'kill' | 'end-kill'; bucket: string | null }
  | { kind: 'promote'; rollout: Rollout }
  | { kind: 'abort'; entry: string }
  | { kind: 'apply'; hash: string }
  | { kind: 'resume' }
  | { kind: 'why'; tenant: string; bucket: string };

interface Props {
  ask: Ask;
  fleet: Fleet;
  caller: Hello | null;
  close(): void;
  done(text: string): void;
}

/** A reply that says what changed. */
interface Done {
  change: { entry: string; from: Mode | null; to: Mode } | null;
  saved: boolean;
}

const RANK: Record<Role, number> = { viewer: 0, operator: 1, admin: 2 };
const moved = ({ change, saved }: Done) =>
  change === null ? 'Nothing to change.' : `${change.entry} is in ${change.to}${saved ? '' : ', not saved yet'}.`;

export function Dialogs({ ask, fleet, caller, close, done }: Props) {
  const common = { caller, close, done };
  switch (ask.kind) {
    case 'why':
      return <Shell title={`Why ${ask.tenant}`} close={close}><WhyAnswer tenant={ask.tenant} bucket={ask.bucket} at={fleet.at_s} /></Shell>;
    case 'resume':
      return <Resume {...common} />;
    case 'kill': {
      const what = ask.bucket ?? 'the fleet';
      const run = async (reason: string) => {
        await post('/kill/on', { reason, ...(ask.bucket === null ? {} : { bucket: ask.bucket }) });
        return `Kill of ${what} ordered: nothing is refused there within a second.`;
      };
      return (
        <Order {...common} title={`Kill ${what}`} verb={`Kill ${what}`} isDanger needs="operator" run={run}>
          <p>
            No instance refuses requests {ask.bucket === null ? 'of any bucket' : `of ${ask.bucket}`} any more, within a second: all
            traffic passes to the services. It lasts until the kill is ended; stages return by Resume.
          </p>
        </Order>
      );
    }
    case 'end-kill': {
      const what = ask.bucket ?? 'the fleet';
      const run = async (reason: string) => {
        await post('/kill/off', { reason, ...(ask.bucket === null ? {} : { bucket: ask.bucket }) });
        return `The kill of ${what} has ended. Entries stay in shadow until they are resumed.`;
      };
      return (
        <Order {...common} title={`End the kill of ${what}`} verb="End the kill" needs="operator" run={run}>
          <p>Entries that the kill put in shadow stay there, and refuse nothing, until they are resumed.</p>
        </Order>
      );
    }
    case 'abort': {
      const run = async (reason: string) => moved(await post<Done>('/rollout/abort', { entry: ask.entry, reason }));
      return (
        <Order {...common} title={`Return ${ask.entry} to shadow`} verb="Return to shadow" needs="operator" run={run}>
          <p>{ask.entry} is counted and refused no more. Its evidence begins anew.</p>
        </Order>
      );
    }
    case 'apply': {
      const run = async (reason: string) => {
        await post('/policy/ack', { hash: ask.hash, reason });
        return `Policy ${ask.hash} is in force.`;
      };
      return (
        <Order {...common} title="Apply the pending policy" verb="Apply" needs="admin" run={run}>
          <p>Policy <code>{ask.hash}</code> replaces <code>{fleet.status.policy_hash}</code>, with the effect that is shown.</p>
        </Order>
      );
    }
    case 'promote': {
      const { entry, next, gate, why, stage } = ask.rollout;
      const passes = gate === 'pass';
      const run = async (reason: string) => moved(await post<Done>('/rollout/promote', { entry, to: next, [passes ? 'reason' : 'force']: reason }));
      return (
        <Order {...common} title={`Promote ${entry} to ${next}`} verb={passes ? 'Promote' : 'Promote by force'} isDanger={!passes}
          needs="operator" run={run}>
          <p>
            {passes
              ? `The gate from ${stage} passes. Its evidence is recorded with your reason.`
              : `The gate from ${stage} does not pass: ${why.join('; ') || 'it cannot be judged yet'}. A promotion now is recorded as forced, with your reason.`}
          </p>
        </Order>
      );
    }
  }
}

interface OrderProps {
  title: string;
  verb: string;
  needs: Role;
  caller: Hello | null;
  isDanger?: boolean;
  /** A word that must be typed. */
  typed?: string;
  isReady?: boolean;
  /** Carries the order out, and returns what happened in a sentence. */
  run(reason: string): Promise<string>;
  close(): void;
  done(text: string): void;
  children: ComponentChildren;
}

function Order({ title, verb, needs, caller, isDanger, typed, isReady = true, run, close, done, children }: OrderProps) {
  const [reason, setReason] = useState('');
  const [word, setWord] = useState('');
  const [isSent, setSent] = useState(false);
  const [failed, setFailed] = useState<string | null>(null);
  const lacks = caller !== null && RANK[caller.role] < RANK[needs];
  const ready = isReady && !isSent && reason.trim() !== '' && (typed === undefined || word.trim() === typed);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (!ready) return;
    setSent(true);
    setFailed(null);
    try {
      done(await run(reason.trim()));
      close();
    } catch (error) {
      // Without an answer nobody knows: the order may have arrived.
      setFailed(`${error instanceof Refused ? 'Not done' : 'Perhaps done'}: ${told(error)}`);
      setSent(false);
    }
  };
  return (
    <Shell title={title} close={close}>
      <form onSubmit={submit}>
        {children}
        {lacks && <p class="sentence warning">You are signed in as {caller.name} with the role {caller.role}; this needs {needs}, and will be refused.</p>}
        <label for="reason">Reason, for the events and the audit log</label>
        <input id="reason" value={reason} autofocus required maxLength={200} autocomplete="off" onInput={(event) => setReason(event.currentTarget.value)} />
        {typed !== undefined && (
          <>
            <label for="typed">Type <strong>{typed}</strong> to confirm</label>
            <input id="typed" value={word} required autocomplete="off" onInput={(event) => setWord(event.currentTarget.value)} />
          </>
        )}
        {failed !== null && <p role="alert" class="sentence critical">{failed}.</p>}
        <p class="actions">
          <button type="button" onClick={close}>Cancel</button>
          <button class={isDanger ? 'danger' : 'main'} disabled={!ready}>{isSent ? 'Sent, waiting for the answer' : verb}</button>
        </p>
      </form>
    </Shell>
  );
}

/** Returns entries to their stages before a kill: what adds refusals is typed. */
function Resume({ caller, close, done }: Pick<Props, 'caller' | 'close' | 'done'>) {
  const [rows, setRows] = useState<Returning[] | null>(null);
  const [failed, setFailed] = useState<string | null>(null);
  const [left, setLeft] = useState<Set<string>>(new Set());
  useEffect(() => {
    get<Returning[]>('/rollout/resume').then(setRows, (error) => setFailed(told(error)));
  }, []);
  const able = (rows ?? []).filter((row) => row.refused === null);
  const entries = able.filter((row) => !left.has(row.entry)).map((row) => row.entry);
  const run = async (reason: string) => {
    const answer = await post<{ changes: { entry: string; to: Mode }[]; refused: Record<string, string> }>('/rollout/resume', { entries, reason });
    const refused = Object.entries(answer.refused).map(([entry, why]) => `${entry} not resumed: ${why}`);
    return [...answer.changes.map((it) => `${it.entry} is in ${it.to} again`), ...refused].join('; ') || 'Nothing was resumed.';
  };
  const toggle = (entry: string) =>
    setLeft((before) => {
      const next = new Set(before);
      if (!next.delete(entry)) next.add(entry);
      return next;
    });
  return (
    <Order title="Resume after a kill" verb={`Resume ${entries.length}`} needs="operator" typed="resume" isReady={entries.length > 0} isDanger
      run={run} caller={caller} close={close} done={done}>
      {failed !== null && <p role="alert" class="sentence critical">The entries cannot be read: {failed}.</p>}
      {rows !== null && rows.length === 0 && <p>Nothing waits to be resumed.</p>}
      <ul class="choices">
        {(rows ?? []).map((row) => (
          <li key={row.entry}>
            <label>
              <input type="checkbox" disabled={row.refused !== null} checked={row.refused === null && !left.has(row.entry)} onChange={() => toggle(row.entry)} />{' '}
              {row.entry}
              {row.refused !== null
                ? `: ${row.refused}`
                : ` to ${row.to}: ${row.would_refuse === null ? 'an unknown share' : percent(row.would_refuse)} of ${rate(row.offered_rps)} requests/s would be refused`}
            </label>
          </li>
        ))}
      </ul>
    </Order>
  );
}

function Shell({ title, close, children }: { title: string; close(): void; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => before instanceof HTMLElement && before.isConnected && before.focus();
  }, []);
  return (
    <dialog ref={dialog} aria-labelledby="dialog" onClose={close}>
      <div class="head">
        <h2 id="dialog">{title}</h2>
        <span class="space" />
        <button type="button" onClick={close}>Close</button>
      </div>
      {children}
    </dialog>
  );
}
