// Takes a token, which stays in the memory of this page.

import { useState } from 'preact/hooks';

export function SignIn({ refused, enter }: { refused: string | null; enter(token: string): void }) {
  const [typed, setTyped] = useState('');
  const submit = (event: Event) => {
    event.preventDefault();
    if (typed.trim() !== '') enter(typed);
    setTyped('');
  };
  return (
    <div class="signin">
      <h1>Plimsoll</h1>
      {refused !== null && <p role="alert" class="sentence critical">{refused}</p>}
      <form onSubmit={submit}>
        <label for="token">Token of this controller</label>
        <input id="token" type="password" autocomplete="off" spellcheck={false} value={typed} autofocus required
          onInput={(event) => setTyped(event.currentTarget.value)} />
        <button class="main">Sign in</button>
      </form>
      <p class="hint">
        <code>plimsoll tokens add NAME --role viewer</code> makes one. Only this page holds it: it is lost when the page is
        closed or loaded again.
      </p>
    </div>
  );
}
