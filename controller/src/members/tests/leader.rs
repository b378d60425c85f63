//! The turn of a member that was elected: opens the state, leads with a real brain, saves, and carries out kill orders,
//! as `Controller::begin` and the tasks do.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_core::directive::Epoch;
use plimsoll_core::law::Parameters;
use plimsoll_core::report::InstanceId;
use plimsoll_policy::{Policy, PolicyTexts};

use super::Ms;
use super::model_store::{Ask, Stored};
use super::operator::policy;
use super::world::{Member, World};
use crate::aggregators::leadership::Mandate;
use crate::brain::Brain;
use crate::state::DurableState;
use crate::tasks::events::EventLog;
use crate::tasks::policy::{hold_at_takeover, saved_policy};

/// What a request of a member belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    Session,
    Append,
    Save,
    Orders,
}

pub(super) struct Turn {
    pub(super) lead: u64,
    pub(super) stage: Stage,
}

pub(super) enum Stage {
    Opening(u64),
    Leading(Box<Leading>),
    Failed,
}

pub(super) struct Leading {
    pub(super) brain: Brain,
    pub(super) known: Option<Known>,
    pub(super) saving: Option<Saving>,
    pub(super) retry_at: Ms,
    pub(super) serves: bool,
    pub(super) confirmed: bool,
    pub(super) tick_at: Ms,
    pub(super) orders_at: Ms,
    pub(super) orders: Orders,
    pub(super) streams: BTreeSet<u64>,
    /// Changes whose operators wait for an answer, until then.
    pub(super) waiting: Vec<(usize, Ms)>,
    /// A policy that waits until the lead is confirmed.
    pub(super) unrecorded: Option<u64>,
}

/// What the store has, as this leader knows it.
pub(super) struct Known {
    pub(super) revision: u64,
    pub(super) texts: Option<Arc<PolicyTexts>>,
}

pub(super) struct Saving {
    pub(super) request: u64,
    pub(super) number: u64,
    pub(super) durable: DurableState,
}

pub(super) enum Orders {
    None,
    Listing(u64),
    Waiting(Vec<u64>, Ms),
    Deleting(u64),
}

impl Known {
    pub(super) fn of(stored: &Stored) -> Self {
        let durable = stored.durable.as_ref();
        Self {
            revision: stored.revision,
            texts: durable.and_then(|durable| durable.policy.clone()),
        }
    }
}

impl Member {
    pub(super) fn leading(&mut self) -> Option<&mut Leading> {
        match &mut self.turn.as_mut()?.stage {
            Stage::Leading(leading) => Some(leading),
            _ => None,
        }
    }

    pub(super) fn brain(&mut self) -> Option<&mut Brain> {
        self.leading().map(|leading| &mut leading.brain)
    }

    /// Returns true if it serves this stream as the leader; for `u64::MAX`, if it serves any.
    pub(super) fn serves(&self, stream: u64) -> bool {
        match self.turn.as_ref().map(|turn| &turn.stage) {
            Some(Stage::Leading(of)) => {
                of.serves && (stream == u64::MAX || of.streams.contains(&stream))
            }
            _ => false,
        }
    }

    pub(super) fn epoch(&self) -> Option<Epoch> {
        match self.turn.as_ref().map(|turn| &turn.stage) {
            Some(Stage::Leading(of)) => Some(of.brain.durable().epoch),
            _ => None,
        }
    }

    pub(super) fn open(&mut self, stream: u64) {
        if let Some(leading) = self.leading() {
            leading.streams.insert(stream);
        }
    }
}

impl World {
    /// Ends the turn of a member that does not lead any more.
    pub(super) fn end_turn(&mut self, number: usize) {
        let member = &mut self.members[number];
        let lead = member.lead.part().lead();
        if member
            .turn
            .as_ref()
            .is_some_and(|turn| Some(turn.lead) != lead)
        {
            member.turn = None;
            for child in self.streams_of(number) {
                self.close(child);
            }
        }
    }

    pub(super) fn turn(&mut self, number: usize) -> Result<(), String> {
        let member = &self.members[number];
        let Some(lead) = member.lead.part().lead() else {
            return Ok(());
        };
        if member.turn.is_none() {
            let request = self.ask(number, Slot::Save, Ask::Open);
            let stage = Stage::Opening(request);
            self.members[number].turn = Some(Turn { lead, stage });
            return Ok(());
        }
        self.follow_lead(number);
        self.tick(number);
        self.save(number);
        self.follow_orders(number);
        self.settle(number)
    }

    pub(super) fn begin(&mut self, number: usize, lead: u64, stored: Stored) {
        let files = policy(self.members[number].files);
        let instance = InstanceId(u128::from(self.rng.next()) + 1_000);
        // As it is read.
        let known = Known::of(&stored);
        let durable = stored.durable.unwrap_or_default();
        let json = serde_json::to_vec(&durable).unwrap();
        let durable: DurableState = serde_json::from_slice(&json).unwrap();
        let in_force: Arc<Policy> =
            saved_policy(&durable, Some(&files)).unwrap_or_else(|| Arc::clone(&files));
        let mut brain = Brain::new(
            self.mono(),
            instance,
            durable,
            in_force,
            Parameters::default(),
        );
        brain.rollouts.ready = Some(Vec::new());
        brain.leadership.mandate = Mandate::Elected { confirmed: true };
        if brain.policy().hash() != files.hash() {
            hold_at_takeover(&mut brain, &files, &EventLog::default());
        }
        let epoch = brain.durable().epoch.0;
        self.tell(format!(
            "m{number}: begins epoch {epoch} as the leader of {lead}"
        ));
        self.seen.takeovers += 1;
        let leading = Leading {
            brain,
            known: Some(known),
            saving: None,
            retry_at: 0,
            serves: false,
            confirmed: true,
            tick_at: 0,
            orders_at: 0,
            orders: Orders::None,
            streams: BTreeSet::new(),
            waiting: Vec::new(),
            unrecorded: None,
        };
        self.members[number].turn = Some(Turn {
            lead,
            stage: Stage::Leading(Box::new(leading)),
        });
        self.save(number);
    }

    /// A start that failed: another member is to lead.
    pub(super) fn fail(&mut self, number: usize) {
        self.tell(format!("m{number}: cannot lead"));
        let member = &mut self.members[number];
        member.resigns = true;
        if let Some(turn) = &mut member.turn {
            turn.stage = Stage::Failed;
        }
    }

    fn follow_lead(&mut self, number: usize) {
        let now = self.instant(self.now);
        let member = &mut self.members[number];
        let confirmed = member.lead.part().is_confirmed(now);
        let Some(leading) = member.leading().filter(|it| it.serves) else {
            return;
        };
        if std::mem::replace(&mut leading.confirmed, confirmed) == confirmed {
            return;
        }
        leading.brain.leadership.mandate = Mandate::Elected { confirmed };
        let unrecorded = leading.unrecorded.take_if(|_| confirmed);
        self.seen.unconfirmed += u64::from(!confirmed);
        self.tell(format!("m{number}: confirmed: {confirmed}"));
        if let Some(files) = unrecorded {
            self.offer(number, files);
        }
    }

    fn tick(&mut self, number: usize) {
        let (now, mono, unix_s) = (self.now, self.mono(), self.unix_s());
        let Some(leading) = self.members[number].leading() else {
            return;
        };
        if leading.serves && now >= leading.tick_at {
            leading.tick_at = now + 500;
            leading.brain.on_tick(mono, unix_s);
        }
    }

    /// Answers the operators whose changes are in effect.
    pub(super) fn settle(&mut self, number: usize) -> Result<(), String> {
        let now = self.now;
        let Some(leading) = self.members[number].leading() else {
            return Ok(());
        };
        let is_over = leading.brain.is_in_effect();
        let saved = leading.brain.is_saved();
        let answered = |(_, until): &mut (usize, Ms)| is_over || now >= *until;
        let answered: Vec<usize> = leading
            .waiting
            .extract_if(.., answered)
            .map(|(act, _)| act)
            .collect();
        for act in answered {
            self.ledger.acts[act].saved |= saved;
            self.seen.saved += u64::from(saved);
            self.seen.unsaved += u64::from(!saved);
            self.tell(format!("m{number}: act {act} is saved: {saved}"));
            self.ledger.check_saved(&self.store)?;
        }
        Ok(())
    }
}
