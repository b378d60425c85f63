//! Fleets of real processes under load, and how single processes start, print and end.

mod goodput;
mod openapi;
mod pipes;
mod processes;
mod sockets;
mod stacked;
