//! The repair schemes as reliabilities: their parameters make a [`Scheme`], and everything else follows from the
//! scheme.

use super::{
    Code, CodeError, CodeKind, Coded, RepairReceiver, RepairSender, Scheme, SdrAutoConfig, SdrNackConfig, SdrSrConfig,
};
use crate::environment::{Environment, TransportConfig};
use crate::host::HostTraits;
use crate::parameter::{Parameter, ParameterError, ParameterSet, Value};
use crate::profile::SwitchConfig;
use crate::reliability::{AnyReceiver, AnyReliability, ReliabilityPolicy};
use crate::units::Span;

/// Parameters that make a scheme.
trait SchemeParameters: ParameterSet {
    fn make(&self) -> Scheme;
    /// The peer may answer this late.
    fn late(&mut self) -> &mut Span;
    /// The erasure code, if the scheme has one.
    fn erasure_code(&self) -> Result<Option<Code>, CodeError> {
        Ok(None)
    }
}

impl<S: SchemeParameters> ReliabilityPolicy for S {
    fn build(&self, transport: &TransportConfig, environment: &Environment) -> AnyReliability {
        AnyReliability::Repair(Box::new(RepairSender::new(self.make(), transport, environment)))
    }
    fn build_receiver(&self, transport: &TransportConfig, environment: &Environment) -> AnyReceiver {
        AnyReceiver::Repair(Box::new(RepairReceiver::new(self.make(), transport, environment)))
    }
    fn timeout(&self, environment: &Environment) -> Span {
        self.make().timeout(environment)
    }
    fn is_one_way(&self) -> bool {
        true
    }
    fn scheme(&self) -> Option<Scheme> {
        Some(self.make())
    }
    fn code(&self) -> Result<Option<Code>, CodeError> {
        self.erasure_code()
    }
    fn adapt_to(&mut self, host: &HostTraits, _transport: &TransportConfig, _switch: &SwitchConfig) {
        let late = self.late();
        *late = (*late).max(host.late_min);
    }
}

impl SchemeParameters for SdrSrConfig {
    fn make(&self) -> Scheme {
        Scheme::from(self)
    }
    fn late(&mut self) -> &mut Span {
        &mut self.late
    }
}

impl SchemeParameters for SdrNackConfig {
    fn make(&self) -> Scheme {
        Scheme::from(self)
    }
    fn late(&mut self) -> &mut Span {
        &mut self.late
    }
}

impl SchemeParameters for SdrAutoConfig {
    fn make(&self) -> Scheme {
        Scheme::from(self)
    }
    fn late(&mut self) -> &mut Span {
        &mut self.late
    }
}

impl<const MDS: bool> SchemeParameters for Coded<MDS> {
    fn make(&self) -> Scheme {
        Scheme::coded(&self.0, Coded::<MDS>::KIND)
    }
    fn late(&mut self) -> &mut Span {
        &mut self.0.late
    }
    fn erasure_code(&self) -> Result<Option<Code>, CodeError> {
        self.0.code(Coded::<MDS>::KIND).map(Some)
    }
}

impl<const MDS: bool> Coded<MDS> {
    const KIND: CodeKind = if MDS { CodeKind::Mds } else { CodeKind::Xor };
}

impl<const MDS: bool> ParameterSet for Coded<MDS> {
    fn table(&self) -> Vec<Parameter> {
        self.0.table()
    }
    fn get(&self, name: &str) -> Option<Value> {
        self.0.get(name)
    }
    fn set(&mut self, name: &str, value: Value) -> Result<(), ParameterError> {
        self.0.set(name, value)
    }
}
