//! What a leader writes: the state, as the task that saves and `EtcdStore` do, and the ends of stored kill orders.

use super::super::kill_orders;
use super::is_without;
use super::leader::{Known, Orders, Saving, Slot, Stage};
use super::model_store::{Answer, Ask, Save};
use super::world::World;

impl World {
    pub(super) fn save(&mut self, number: usize) {
        let now = self.now;
        let Some(leading) = self.members[number].leading() else {
            return;
        };
        if leading.saving.is_some() || now < leading.retry_at {
            return;
        }
        let Some((change, durable)) = leading.brain.unsaved() else {
            return;
        };
        leading.saving = Some(Saving {
            request: 0,
            number: change,
            durable,
        });
        self.send_save(number);
    }

    /// Writes the state; reads it first if it is unknown what the store has.
    fn send_save(&mut self, number: usize) {
        let Some(turn) = &self.members[number].turn else {
            return;
        };
        let Stage::Leading(leading) = &turn.stage else {
            return;
        };
        let Some(saving) = &leading.saving else {
            return;
        };
        let ask = match &leading.known {
            None => Ask::Open,
            Some(known) => {
                let policy =
                    (known.texts != saving.durable.policy).then(|| saving.durable.policy.clone());
                Ask::Save(Box::new(Save {
                    lead: turn.lead,
                    after: known.revision,
                    durable: saving.durable.clone(),
                    policy,
                }))
            }
        };
        let request = self.ask(number, Slot::Save, ask);
        if let Some(saving) = self.members[number]
            .leading()
            .and_then(|it| it.saving.as_mut())
        {
            saving.request = request;
        }
    }

    pub(super) fn on_turn_answer(
        &mut self,
        number: usize,
        slot: Slot,
        request: u64,
        answer: Option<Answer>,
    ) -> Result<(), String> {
        let Some(turn) = &self.members[number].turn else {
            return Ok(());
        };
        let lead = turn.lead;
        if let Stage::Opening(opening) = turn.stage {
            match answer {
                _ if opening != request => {}
                Some(Answer::Opened(stored)) => self.begin(number, lead, *stored),
                _ => self.fail(number),
            }
            return Ok(());
        }
        match slot {
            Slot::Save => self.on_save_answer(number, lead, request, answer),
            _ => self.on_orders_answer(number, lead, request, answer),
        }
        self.settle(number)
    }

    fn on_save_answer(&mut self, number: usize, lead: u64, request: u64, answer: Option<Answer>) {
        let now = self.now;
        let Some(leading) = self.members[number].leading() else {
            return;
        };
        if leading
            .saving
            .as_ref()
            .is_none_or(|it| it.request != request)
        {
            return;
        }
        if let Some(Answer::Opened(stored)) = answer {
            leading.known = Some(Known::of(&stored));
            return self.send_save(number);
        }
        let Some(saving) = leading.saving.take() else {
            return;
        };
        if let Some(Answer::Saved(revision)) = answer {
            let texts = saving.durable.policy;
            leading.known = Some(Known { revision, texts });
            leading.brain.on_saved(saving.number);
            leading.serves = true;
            return self.save(number);
        }
        leading.retry_at = now + 500;
        if !is_without("reading again") {
            leading.known = None;
        }
        leading.brain.on_save_failed("lost".to_owned());
        if !leading.serves {
            return self.fail(number);
        }
        if matches!(answer, Some(Answer::Refused(leader)) if leader != Some(lead)) {
            self.members[number].lead.ask();
        }
    }

    pub(super) fn follow_orders(&mut self, number: usize) {
        let now = self.now;
        let Some(turn) = &mut self.members[number].turn else {
            return;
        };
        let Stage::Leading(leading) = &mut turn.stage else {
            return;
        };
        let ask = match &leading.orders {
            Orders::None if leading.serves && now >= leading.orders_at => Ask::List,
            Orders::Waiting(keys, until) if leading.brain.is_in_effect() || now >= *until => {
                if !leading.brain.is_saved() {
                    leading.orders = Orders::None;
                    return;
                }
                Ask::Delete(turn.lead, keys.clone())
            }
            _ => return,
        };
        leading.orders_at = now + 500;
        let is_list = matches!(ask, Ask::List);
        let request = self.ask(number, Slot::Orders, ask);
        if let Some(leading) = self.members[number].leading() {
            leading.orders = match is_list {
                true => Orders::Listing(request),
                false => Orders::Deleting(request),
            };
        }
    }

    fn on_orders_answer(&mut self, number: usize, _: u64, request: u64, answer: Option<Answer>) {
        let now = self.now;
        let Some(leading) = self.members[number].leading() else {
            return;
        };
        match (&leading.orders, answer) {
            (Orders::Listing(of), Some(Answer::Orders(orders))) if *of == request => {
                let mut texts = Vec::new();
                let stored = orders.iter().map(|(key, _)| *key).collect();
                leading.brain.retain_stored_kills(&stored);
                for (key, order) in &orders {
                    if kill_orders::kill(&mut leading.brain, *key, order).is_some() {
                        texts.push(format!("m{number}: carries out order {key}: {order:?}"));
                    }
                }
                leading.orders = match orders.is_empty() {
                    true => Orders::None,
                    false => {
                        Orders::Waiting(orders.iter().map(|(key, _)| *key).collect(), now + 3_000)
                    }
                };
                texts.into_iter().for_each(|text| self.tell(text));
                self.save(number);
            }
            (Orders::Listing(of) | Orders::Deleting(of), _) if *of == request => {
                leading.orders = Orders::None;
            }
            _ => {}
        }
    }
}
