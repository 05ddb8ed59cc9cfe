"""Profiles with a clock and with power limits, whose laws are known."""

from wattsched.perfmodels.power import FrequencyModel, PowerLimitTable, PowerModel
from wattsched.perfmodels.profile import Profile
from wattsched.perfmodels.throughput import Throughput

CLOCKED = Profile(
    model="net",
    gpu_type="A",
    throughput=Throughput(
        alpha_c=0.01, beta_c=0.002, alpha_r=0.02, beta_r=0.002, alpha_n=0.05, beta_n=0.0004, gamma=1.5
    ),
    power=PowerModel(static_w=100.0, dynamic_w=300.0, exponent=3.0, sync_w=80.0),
    frequency=FrequencyModel(max_mhz=1400, choices_mhz=[800, 1100, 1400], memory_bound_share=0.2),
    batch_sizes=[32, 64, 128],
    default_batch=64,
    max_local_batch=128,
    gpu_counts=[1, 2, 4, 8, 16],
)
LIMITED = CLOCKED.model_copy(
    update={
        "frequency": None,
        "gpu_counts": [1],
        "power_limits": PowerLimitTable(
            limit_w=[100.0, 175.0, 250.0],
            local_batch=[32, 128],
            slowdown=[[1.3, 1.1, 1.0], [1.9, 1.2, 1.0]],
            power_w=[[95.0, 140.0, 160.0], [99.0, 170.0, 225.0]],
        ),
    }
)
