//! Calls through the layer, to services behind the real middleware, over real connections where those matter.

#[cfg(test)]
mod calls;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod rules;
