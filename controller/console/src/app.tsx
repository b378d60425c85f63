// The page: the verdict first, then what is wrong, then buckets, with what a viewer asks about one of them beside.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { Buckets } from './views/buckets';
import { Detail } from './views/detail';
import { Dialogs, type Ask } from './views/dialogs';
import { Events } from './views/events';
import { Past } from './data/past';
import { Pending } from './views/pending';
import { signIn } from './data/session';
import { SignIn } from './views/signin';
import { type Connection, type View, follow } from './data/stream';
import { Problems, Top } from './views/top';
import type { Frame, Hello } from './data/wire';
import { Zones } from './views/zones';

const FIRST: View = { search: '', sort: 'worst', page: 0, bucket: null, tenant: '', tenant_page: 0 };
const TOKEN_NEEDED = document.documentElement.dataset.token !== 'optional';
const TYPING_MS = 200;
const DONE_MS = 20_000;
const FEW = 12;

/** The latest message, and when it arrived by this machine's clock. */
export interface Shown extends Frame {
  arrivedMs: number;
}

export function App() {
  const [session, setSession] = useState<{ signedIn: boolean; refused: string | null }>({
    signedIn: !TOKEN_NEEDED,
    refused: null,
  });
  const [caller, setCaller] = useState<Hello | null>(null);
  const [connection, setConnection] = useState<Connection>({ kind: 'connecting' });
  const [shown, setShown] = useState<Shown | null>(null);
  const [view, setView] = useState<View>(FIRST);
  const [ask, setAsk] = useState<Ask | null>(null);
  const [done, setDone] = useState('');
  const past = useMemo(() => new Past(), []);
  const stream = useRef<{ stop(): void; now(): void } | null>(null);
  const asked = useSettled(view, TYPING_MS);

  useEffect(() => {
    if (!session.signedIn) return;
    stream.current = follow(asked, {
      hello: setCaller,
      frame: (frame) => {
        past.add(frame);
        setShown({ ...frame, arrivedMs: Date.now() });
      },
      connection: (next) => {
        setConnection(next);
        if (next.kind === 'refused') {
          signIn(null);
          setSession({ signedIn: false, refused: next.text });
        }
      },
    });
    return () => stream.current?.stop();
  }, [session, asked]);

  useEffect(() => {
    const timer = setTimeout(() => setDone(''), DONE_MS);
    return () => clearTimeout(timer);
  }, [done]);

  const enter = (token: string | null) => {
    signIn(token);
    setConnection({ kind: 'connecting' });
    setSession({ signedIn: true, refused: null });
  };
  const leave = () => {
    signIn(null);
    [setShown, setCaller].forEach((forget) => forget(null));
    past.clear();
    setSession({ signedIn: false, refused: null });
  };

  if (!session.signedIn && shown === null) return <main><SignIn refused={session.refused} enter={enter} /></main>;
  const isOld = connection.kind !== 'live' && shown !== null;
  const change = (part: Partial<View>) => setView((before) => ({ ...before, ...part }));
  // Few buckets leave room below them, beside the chosen one.
  const isBelow = view.bucket !== null && shown !== null && shown.view.buckets.total <= FEW;
  const rest = shown !== null && (
    <>
      <Zones fleet={shown.fleet} />
      <Events at={shown.fleet.at_s} isLive={connection.kind === 'live'} />
    </>
  );
  return (
    <div class={isOld ? 'page old' : 'page'}>
      <a class="skip" href="#buckets">Skip to the buckets</a>
      <Top shown={shown} connection={connection} caller={caller} ask={setAsk} retry={() => stream.current?.now()} leave={leave} />
      {!session.signedIn && <SignIn refused={session.refused} enter={enter} />}
      <p class="done" role="status">{done}</p>
      {shown !== null && (
        <main class={view.bucket === null ? 'grid' : 'grid chosen'}>
          <Problems fleet={shown.fleet} ask={setAsk} />
          <div class="side list">
            <Buckets page={shown.view.buckets} view={view} change={change} past={past} />
            {isBelow && rest}
          </div>
          <div class="side about">
            {view.bucket !== null && (
              <Detail
                key={view.bucket}
                name={view.bucket}
                detail={shown.view.bucket?.row.name === view.bucket ? shown.view.bucket : null}
                isAnswered={asked.bucket === view.bucket && connection.kind === 'live'}
                view={view}
                change={change}
                past={past}
                ask={setAsk}
                at={shown.fleet.at_s}
              />
            )}
            {shown.fleet.held !== null && <Pending held={shown.fleet.held} at={shown.fleet.at_s} ask={setAsk} />}
            {!isBelow && rest}
          </div>
        </main>
      )}
      {ask !== null && shown !== null && (
        <Dialogs ask={ask} fleet={shown.fleet} caller={caller} close={() => setAsk(null)} done={setDone} />
      )}
    </div>
  );
}

/** Returns a value once it has not changed for a while, so that typing opens no stream for each letter. */
function useSettled<T>(value: T, ms: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}
