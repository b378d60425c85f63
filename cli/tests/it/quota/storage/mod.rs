//! The storage of a quota server: crashes, damage, full disks, system calls and clocks that step.

mod clock;
mod crash;
mod damage;
mod disk;
mod journal;
mod trace;
