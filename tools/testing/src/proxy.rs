//! A proxy for TCP whose link can be cut, as a network does: for tests of partitions between real processes.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

/// State of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Open,
    /// Nothing passes, and connections stay: a network that loses every packet.
    Frozen,
    /// Connections break, and new ones end immediately: a network that refuses.
    Refused,
}

/// Forwards connections to one address while its link is open. Its threads live as long as the process.
pub struct Proxy {
    pub address: SocketAddr,
    switch: Arc<Switch>,
}

struct Switch {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    link: Link,
    /// Both ends of each connection, which a refused link closes.
    ends: Vec<TcpStream>,
}

impl Proxy {
    /// Listens at `listen`, whose port may be 0, for connections to `target`.
    pub fn start(listen: SocketAddr, target: SocketAddr) -> Self {
        let listener = TcpListener::bind(listen).unwrap();
        let state = State {
            link: Link::Open,
            ends: Vec::new(),
        };
        let switch = Arc::new(Switch {
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            switch: Arc::clone(&switch),
        };
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let switch = Arc::clone(&switch);
                thread::spawn(move || switch.connect(near, target));
            }
        });
        proxy
    }

    pub fn set(&self, link: Link) {
        let mut state = self.switch.lock();
        state.link = link;
        if link == Link::Refused {
            for end in state.ends.drain(..) {
                // The peer may have closed it.
                let _ = end.shutdown(Shutdown::Both);
            }
        }
        drop(state);
        self.switch.changed.notify_all();
    }
}

impl Switch {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the link is frozen, and returns false if it is refused.
    fn passes(&self) -> bool {
        let is_frozen = |state: &mut State| state.link == Link::Frozen;
        let state = self.changed.wait_while(self.lock(), is_frozen);
        state.unwrap_or_else(PoisonError::into_inner).link == Link::Open
    }

    /// Dropping the near end closes it, if the link or the target refuses.
    fn connect(self: Arc<Self>, near: TcpStream, target: SocketAddr) {
        if !self.passes() {
            return;
        }
        let Ok(far) = TcpStream::connect(target) else {
            return;
        };
        let copy = |end: &TcpStream| end.try_clone().unwrap();
        {
            let ends = &mut self.lock().ends;
            ends.retain(|end| end.peer_addr().is_ok());
            ends.extend([copy(&near), copy(&far)]);
        }
        let (back, switch) = ((copy(&far), copy(&near)), Arc::clone(&self));
        thread::spawn(move || switch.pump(back.0, back.1));
        self.pump(near, far);
    }

    /// Copies bytes until an end closes, and closes the other one.
    fn pump(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = [0; 16 << 10];
        let mut copied = || -> io::Result<bool> {
            let read = from.read(&mut buffer)?;
            // Read before the cut, and not arrived yet.
            if read == 0 || !self.passes() {
                return Ok(false);
            }
            to.write_all(&buffer[..read])?;
            Ok(true)
        };
        while copied().is_ok_and(|goes_on| goes_on) {}
        // A closed end is news, which a frozen link does not bring.
        self.passes();
        for end in [&from, &to] {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for end in listener.incoming() {
                let end = end.unwrap();
                thread::spawn(move || io::copy(&mut &end, &mut &end));
            }
        });
        address
    }

    #[test]
    fn frozen_bytes_arrive_late() {
        let proxy = Proxy::start("127.0.0.1:0".parse().unwrap(), echo());
        let mut end = TcpStream::connect(proxy.address).unwrap();
        let mut exchange = |byte: u8, patience: u64| {
            let patience = Duration::from_millis(patience);
            end.set_read_timeout(Some(patience)).unwrap();
            let mut answer = [0];
            if byte > 0 {
                end.write_all(&[byte]).unwrap();
            }
            end.read_exact(&mut answer).map(|()| answer[0])
        };
        assert_eq!(exchange(1, 10_000).unwrap(), 1);
        proxy.set(Link::Frozen);
        assert!(exchange(2, 100).is_err());
        proxy.set(Link::Open);
        assert_eq!(exchange(0, 10_000).unwrap(), 2);
        proxy.set(Link::Refused);
        assert!(exchange(3, 10_000).is_err());
    }
}
