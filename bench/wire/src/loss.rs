//! Goodput when every plane loses packets at random.

use crate::contest::{Column, Contest, Row};
use crate::goodput::{Meter, goodput};
use crate::network::{Network, Wire};
use crate::ours::Ours;
use crate::planes::{MTU, PAYLOAD, RATE_MBPS};
use crate::{Options, tcp};

const PLANES: usize = 2;
/// Lost packets in a million.
const LOSSES: [u32; 3] = [0, 10_000, 50_000];

pub(crate) fn contest<'a>(network: &'a Network, options: &Options) -> Result<Contest<'a>, String> {
    let (seconds, mut rows) = (options.seconds, Vec::new());
    let columns = [Column::new("goodput", "Mb/s")];
    let name = |who: &str, ppm: u32| format!("{who}, {} %", ppm / 10_000);
    for shaped in [None, Some(RATE_MBPS)] {
        let table = match shaped {
            None => "unshaped; what is under way is limited by windows".to_string(),
            Some(rate) => format!("shaped to {rate} Mb/s per plane"),
        };
        let wire = move |loss_ppm| Wire { rate_mbps: shaped, loss_ppm, batches: false, ..Wire::plain(MTU) };
        for ppm in LOSSES {
            for profile in ["uec", "strack_fast", "mrc"] {
                let mut ours = Ours::new(profile, PAYLOAD)?;
                ours.planes = PLANES;
                if shaped.is_some() {
                    ours = ours.over(PLANES, RATE_MBPS, options.base_rtt);
                }
                let row = Row::new(&table, name(&format!("{profile}, {PLANES} planes"), ppm), &columns, move || {
                    network.set(wire(ppm))?;
                    Ok(vec![ours.goodput(seconds)?.iter().sum::<f64>() * 1e3])
                });
                rows.push(row.against(name(&format!("{profile}, {PLANES} planes"), 0)));
            }
            for control in tcp::controls() {
                let who = format!("TCP {control}, one plane");
                let row = Row::new(&table, name(&who, ppm), &columns, move || {
                    network.set(wire(ppm))?;
                    let send = |meter: &Meter| tcp::send(meter, control);
                    Ok(vec![goodput(seconds, send, |meter| tcp::receive(meter, control))?[0] * 1e3])
                });
                rows.push(row.against(name(&who, 0)));
            }
        }
    }
    Ok(Contest { section: "loss", rows })
}
