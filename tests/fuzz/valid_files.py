"""A small valid file of each kind that is read."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

CLUSTER = {
    "name": "c",
    "gpu_types": {"A100": {"idle_power_w": 50.0, "max_power_w": 400.0}},
    "nodes": [
        {"name": f"n{i}", "gpu_type": "A100", "gpus": 4, "parent": f"r{i // 2}", "base_power_w": 100.0}
        for i in range(4)
    ],
    "groups": [{"name": "top", "level": "site"}] + [{"name": f"r{i}", "parent": "top"} for i in range(2)],
    "power_domains": [{"name": "feed", "members": ["r0", "n3"], "power_cap_w": 4000.0}],
}
TABLE = {"gpus": [1, 2, 4], "pool": ["A100"] * 3, "power_w": [250.0, 480.0, 900.0], "rate": [1.0, 1.8, 3.1]}
SIZING = {
    "format": "wattsched-instance/1",
    "name": "round",
    "objective": "total-completion",
    "round_s": 300.0,
    "carbon_g_per_kwh": 300.0,
    "budgets": {"power_w": 5000.0, "energy_j": 1e9, "carbon_g": 1e6, "scope": "completion"},
    "cluster": CLUSTER,
    "tables": {"t": TABLE},
    "jobs": [
        {"name": "a", "options": "t", "remaining_work": 1000.0, "weight": 2.0, "deadline_s": 1e6},
        {
            "name": "b",
            "options": TABLE,
            "remaining_work": 10.0,
            "min_gpus": 1,
            "max_gpus": 2,
            "can_wait": False,
        },
        {"name": "c", "model": "resnet50", "remaining_work": 1e6, "gpu_counts": [1, 2], "pools": ["A100"]},
        {
            "name": "d",
            "options": [{"gpus": 1, "pool": "A100", "power_w": 200.0, "rate": 1.0, "batch_size": 8}],
            "current": {"gpus": 1, "pool": "A100@feed", "batch_size": 8, "nodes": {"n0": [0]}},
            "restart_s": 30.0,
        },
    ],
    "sets": [{"name": "s", "pool": "A100", "gpus": 2, "power_w": 500.0, "rates": {"a": 0.9, "b": 1.0}}],
}
BOUND = {
    "format": "wattsched-replay-bound/1",
    "pools": {"G": 4},
    "options": {"t": {"pool": ["G", "G"], "gpus": [1, 2], "rate": [1.0, 1.8], "power_w": [90.0, 170.0]}},
    "jobs": {"name": ["a", "b"], "arrival_s": [0.0, 50.0], "work": [200.0, 90.0], "options": ["t", "t"]},
    "standing_w": 50.0,
    "budget": {
        "quantity": "energy_j",
        "amount": 5e5,
        "begin_s": 0.0,
        "period_s": 300.0,
        "time_s": [0.0, 150.0],
        "per_kwh": [3.6e6, 2e6],
    },
    "slot_edges_s": [0.0, 100.0, 250.0, 600.0],
    "proofs": [
        {
            "joule_price": 0.0,
            "gpus": {"G": [0.1, 0.2, 0.0]},
            "budget": [1e-4],
            "worth": {"t": [0.5, 1.0]},
            "bound_s": -500.0,
        }
    ],
}
SHIFTING = {
    "format": "wattsched-instance/1",
    "problem": "shifting",
    "objective": "carbon",
    "slots": 6,
    "slot_s": [600.0, 60.0, 5.0, 600.0, 900.0, 600.0, 30.0],
    "carbon_g_per_kwh": [100.0, 300.0, 200.0, 50.0, 400.0, 100.0],
    "price_per_kwh": [0.1, 0.2, 0.3, 0.1, 0.1, 0.2],
    "budgets": {"energy_j": 1e9, "average_completion_s": 1e5},
    "pools": {"A100": {"gpus": 8, "idle_power_w": 50.0}},
    "tables": {"t": TABLE},
    "jobs": [
        {"name": "a", "options": "t", "remaining_work": 900.0, "arrival_s": 600.0, "must_finish": True},
        {"name": "b", "options": TABLE, "remaining_work": 2000.0, "restart_s": 10.0, "has_run": True},
    ],
}
SHARING = {
    "format": "wattsched-instance/1",
    "problem": "sharing",
    "alpha": 0.5,
    "unit_types": [{"name": "node", "count": 2, "gpus": 8, "idle_power_w": 400.0, "full_power_w": 2000.0}],
    "classes": [
        {"name": "x", "alone": {"node": {"epoch_s": 100.0, "utilisation_pct": 40.0, "memory_pct": 30.0}}},
        {"name": "y", "alone": {"node": {"epoch_s": 50.0, "utilisation_pct": 60.0, "power_w": 900.0}}},
    ],
    "sets": [{"unit_type": "node", "classes": ["x", "y"], "slowdown": [1.1, 1.2], "power_w": 1200.0}],
    "jobs": [
        {"name": "a", "job_class": "x", "remaining_epochs": 10.0},
        {"name": "b", "job_class": "y", "deadline_s": 1e5, "exclusive": True},
        {"name": "c", "job_class": "y", "can_wait": False},
    ],
}
PLACEMENT = {
    "format": "wattsched-instance/1",
    "problem": "placement",
    "gpu_types": {"T4": {"idle_power_w": 10, "full_power_w": 70}},
    "nodes": [
        {"name": "n0", "cpu_milli": 64000, "memory_mib": 10000, "gpus": 2, "gpu_type": "T4"},
        {"name": "n1", "cpu_milli": 96000, "gpus": 4, "gpu_type": "T4", "used_gpu_milli": [500, 1000]},
    ],
    "tasks": [
        {"name": "a", "cpu_milli": 4000, "gpus": 1, "gpu_milli": 500},
        {"name": "b", "cpu_milli": 8000, "gpus": 2, "gpu_types": ["T4"], "memory_mib": 100},
    ],
    "workload": [{"cpu_milli": 4000, "gpus": 1, "gpu_milli": 500, "count": 3}],
}
INSTANCES: dict[str, Any] = {
    "sizing": SIZING,
    "shifting": SHIFTING,
    "sharing": SHARING,
    "placement": PLACEMENT,
}
NODE_LINK = {
    "directed": True,
    "graph": {"name": "c", "gpu_types": {"A100": {"idle_power_w": 50.0, "max_power_w": 400.0}}},
    "nodes": [
        {"id": "top", "level": "rack"},
        {"id": "n0", "level": "node", "gpu_type": "A100", "base_power_w": 10.0},
        {"id": "n0/0", "level": "gpu", "gpu_type": "A100"},
        {"id": "n0/1", "level": "gpu", "gpu_type": "A100", "available": False},
    ],
    "edges": [
        {"source": "top", "target": "n0", "bandwidth_gbps": 100.0},
        {"source": "n0", "target": "n0/0"},
        {"source": "n0", "target": "n0/1"},
    ],
}
SACCT = {
    "jobs": [
        {
            "job_id": 17,
            "user": "ann",
            "account": "vision",
            "state": {"current": ["COMPLETED"]},
            "time": {"elapsed": 900, "eligible": 1_800_000_000, "submission": 1, "start": 1_800_000_100},
            "array": {"job_id": 16, "task_id": {"set": True, "infinite": False, "number": 3}},
            "tres": {"allocated": [{"type": "gres", "name": "gpu:a100", "count": 4}], "requested": []},
            "nodes": "n[0-1]",
            "steps": [{"statistics": {"energy": {"consumed": 1e6}}}],
        }
    ]
}
KUBECTL = {
    "items": [
        {
            "kind": "Node",
            "metadata": {"name": "n", "labels": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}},
            "status": {"capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"nvidia.com/gpu": "8"}},
        },
        {
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "a", "creationTimestamp": "2026-11-01T00:00:00Z"},
            "spec": {
                "nodeName": "n",
                "containers": [{"resources": {"limits": {"nvidia.com/gpu": "4"}}}],
            },
            "status": {
                "phase": "Succeeded",
                "startTime": "2026-11-01T00:00:05Z",
                "containerStatuses": [{"state": {"terminated": {"finishedAt": "2026-11-01T01:00:05Z"}}}],
            },
        },
    ]
}
THROUGHPUTS = {
    gpu: {
        name: {
            "null": 10.0,
            "('ResNet-18', 1)": [5.0, 6.0],
            "('LM', 1)": [0.0, 0.0],
        }
        for name in ("('ResNet-18', 1)", "('LM', 1)")
    }
    for gpu in ("v100", "p100")
}
QUERY = {
    "status": "success",
    "data": {
        "resultType": "matrix",
        "result": [
            {
                "metric": {
                    "__name__": f"DCGM_FI_DEV_{name}",
                    "UUID": "GPU-1",
                    "pod": "smi",
                    "namespace": "a",
                },
                "values": [[1_790_000_000 + 15 * n, f"{value + n}"] for n in range(8)],
            }
            for name, value in (("POWER_USAGE", 250), ("GPU_UTIL", 80), ("SM_CLOCK", 1403))
        ],
    },
}
SLURM = """# racks
SwitchName=s0 Nodes=n[00-03],m1 LinkSpeed=100
SwitchName=s1 Nodes=x[1-2]y[0-1]
SwitchName=top Switches=s[0-1]
"""
SOLUTION = """Model status
Optimal

# Primal solution values
Feasible
Objective 0.1131018518519
# Columns 11
x0_pattern_0_ 0
x1_pattern_1_ 1
x2_pattern_2_ 1
x3_placement_0_ 0
x4_placement_1_ 1
x5_placement_2_ 1
x6_placement_3_ 0
x7_placement_4_ 1
x8_waiting_0_ 0
x9_waiting_1_ 0
x10_waiting_2_ 0
# Rows 8
"""
SMI = "timestamp, index, power.draw [W], clocks.current.sm [MHz], power.limit [W], utilization.gpu [%]\n"
SMI += "".join(
    f"2026/11/03 08:30:{s:02d}.125, {g}, {250 + s}.50 W, 1410 MHz, 400.00 W, {97 * (s > 3)} %\n"
    for s in range(12)
    for g in (0, 1)
)
TABLES = {
    "itp.csv": """job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration
a,5010,7628,bert,5985,64,1,1265
b,5100,100,resnet50,5985,128,4,4000
c,9000,100,bert,5985,32,2,100
""",
    "philly.csv": """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 07:31:55,6600.0,8,66.0,11cb48
2017-10-10 07:01:55,60000.0,2,66.0,e4
""",
    "pai.csv": "arrival_time,length,cpus\n0.0,25.4,1\n0.57,2.5,4\n10.65,14.3,3\n",
    "gavel.csv": """job_type,total_steps,scale_factor,priority_weight,slo,arrival_time_s
ResNet-18,2931,1,1,-1.0,0
LM,50000,1,1,-1.0,600.5
""",
    "plain.csv": """job,arrival,duration,gpus,gpu_type,watts,user,account,model
a,2026-11-03 08:30,3600,2,A100,500.5,ann,vision,resnet50
b,2026-11-03T09:30:00,1-02:03:04,4,,,bob,,
c,2026-11-04,00:20:00,0,,,,,
""",
    "nodes.csv": """sn,cpu_milli,memory_mib,gpu,model
n0,64000,262144,2,P100
n1,96000,262144,4,T4
n2,32000,262144,0,
""",
    "tasks.csv": """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
t0,12000,16384,1,1000,
t1,6000,100,1,460,T4|P100
t2,8000,2,0,0,
""",
    "carbon.csv": """datetime_utc,g_per_kwh,FR
2022-07-01T00:00:00+00:00,420.5,60
2022-07-01T01:00:00+00:00,400,61.25
2022-07-01T02:00:00+00:00,,62
2022-07-01T03:00:00+00:00,300.1,
""",
    "jobs.csv": """job,arrival_s,work,requested_gpus,model,table,min_gpus,max_gpus
a,0,100000,2,resnet50,,1,4
b,600.5,2000,1,,t,,
c,1000,500,4,,t,1,
""",
    "smi.csv": SMI,
    "zeus.csv": """start_time,window_name,elapsed_time,gpu0_energy
13588420.8,step,10.5,2924.4
13588434.2,step,10.3,2758.4
13588447.7,smi,11.2,2780.3
""",
    "logged.csv": """job,batch_size,step_time_s,start,end,frequency_mhz
*,64,0.5,1970-01-01 08:30:00,,1410
*,128,0.9,,2026/11/03 08:31:00.5,1005
""",
    "measured.csv": """gpus,local_batch,step_time_s,sync_time_s,frequency_mhz,power_w
1,16,0.10,0,1410,250
1,32,0.18,0,1410,280
2,16,0.12,0.02,1410,240
4,16,0.13,0.03,1410,235
8,32,0.25,0.05,1410,260
1,16,0.14,0,1005,180
2,32,0.28,0.02,1005,190
4,32,0.30,0.03,1005,185
""",
}


@cache
def valid_files() -> dict[str, bytes]:
    """A valid file of every kind, by name."""
    from wattsched import solve
    from wattsched.results.documents import instance_of

    documents = {f"{name}.json": instance for name, instance in INSTANCES.items()}
    for name, instance in list(documents.items()):
        result = solve(instance_of(instance), solver="greedy")
        documents[name.replace(".", "-result.")] = result.model_dump(mode="json")
    documents["bound.json"] = BOUND
    documents["decision.json"] = documents["sizing-result.json"]["decision"]
    point = {"limit": None, "result": documents["shifting-result.json"]}
    documents["frontier.json"] = {
        "format": "wattsched-frontier/1",
        "instance": "instance",
        "tradeoff": "carbon",
        "points": [point, point | {"limit": 5.0}],
    }
    documents |= {"tables.json": {"t": TABLE}, "throughputs.json": THROUGHPUTS, "cluster.json": NODE_LINK}
    documents |= {"sacct.json": SACCT, "kubectl.json": KUBECTL, "query.json": QUERY}
    files = {name: json.dumps(document) for name, document in documents.items()}
    files |= TABLES | {"topology.conf": SLURM}
    files |= {"solution.sol": SOLUTION}
    return {name: text.encode() for name, text in files.items()}
