"""What a command refuses it says in one line, with exit code 2, and it leaves nothing behind."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from .conftest import DEMO, JOBS, TABLES, refused

EXAMPLES = DEMO.parent
TRACE = "job_id,submission_time,duration,num_gpu\n"
FILES = {
    "trace.csv": TRACE + "a,0,100,1\n",
    "twice.csv": TRACE + "a,0,100,1\nb,0,100,1\na,0,100,1\n",
    "other.csv": TRACE + "b,0,100,1\na,0,100,1\n",
    "nodes.csv": "sn,cpu_milli,memory_mib,gpu,model\na,32000,9000,2,T4\nb,96000,9000,8,G2\n",
    "tasks.csv": "cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n1000,10,1,500,\n2000,10,1,1000,\n",
    "sub/steps.csv": "gpus,local_batch,step_time_s,power_w\n1,8,0.1,200\n",
    "jobs.csv": JOBS,
    "tables.json": json.dumps(TABLES),
    "folder.png/file": "",
    "empty": "",
    "one": f"reader read {'0' * 64}\n",
}
COPIED = ("demo.json", "slurm.json", "kubernetes.json", "site/sacct.txt", "site/nodes.txt")
USUAL = {
    "place": {"--nodes": "nodes.csv", "--tasks": "tasks.csv"},
    "replay": {"": "jobs.csv", "--tables": "tables.json"},
}
"""Arguments of a command without which it would refuse something else; given ones take their place."""

REFUSED = """
slove | no such command 'slove' (did you mean 'solve'?)
generate hetro | unknown family 'hetro' (did you mean 'hetero'?); known: uniform
solve demo.json --solver hihgs | unknown solver 'hihgs' (did you mean 'highs'?); known
solve demo.json --formulation mkcp | 'mkcp' of problem 'sizing' (did you mean 'mckp'?)
solve demo.json --objective makespam | (did you mean 'makespan'?); known: total-completion
replay --policy sizng | no policy 'sizng' (did you mean 'sizing'?); see
replay --policy FIFO | no policy 'FIFO' (did you mean 'fifo'?); see
replay --policy sizng+zeus | (did you mean 'sizing+zeus'?); see
place --policy best-fti | no policy 'best-fti' (did you mean 'best-fit'?); see
place --policy pwr+fdg:100/900 | does not score (did you mean 'fgd'?); see
export demo.json --formulation zzz -o model.mps | error: unknown formulation 'zzz' of problem 'sizing'; known:
export demo.json --objective zzz -o model.mps | error: unknown objective 'zzz' of problem 'sizing'; known:
compare demo.json --solvers nonsense | unknown solver 'nonsense'
compare demo.json --formulations nonsense | unknown formulation 'nonsense'
compare demo.json --objective nonsense | unknown objective 'nonsense'
solve demo.json --gap nan | '--gap': nan is not between 0 and 1
solve demo.json --gap 1 | '--gap': 1.0 is not between 0 and 1
solve demo.json --gap -0.1 | '--gap': -0.1 is not between 0 and 1
solve demo.json --gap 1e400 | '--gap': '1e400' is beyond the largest number, 1.8e308
solve demo.json --time-limit 0 | '--time-limit': 0.0 is not a positive number of seconds, or 'inf'
solve demo.json --time-limit nan | '--time-limit': nan is not a positive number of seconds, or 'inf'
solve demo.json --time-limit soon | '--time-limit': 'soon' is not a number
solve demo.json --time-limit 1e400 | '1e400' is beyond the largest number
solve demo.json --threads 0 | '--threads': must be at least 1, got 0
solve demo.json --threads many | '--threads': 'many' is not a whole number
solve demo.json --threads 99999999999999999999999 | '--threads': must be at most 2,147,483,647, got
solve demo.json --seed -1 | '--seed': must be at least 0, got -1
solve demo.json --seed 1099511627776 | '--seed': must be at most 2,147,483,647, got 1,099,511,627,776
solve demo.json -o result.txt | '-o' / '--output': 'result.txt' must end in .json, .json.gz or
solve demo.json -o no/such/folder/result.json | -o 'no/such/folder/result.json': the folder
solve demo.json -o '' | '-o' / '--output': '' must end in .json, .json.gz or .parquet
solve demo.json --warm missing.json | missing.json: no such file or directory
solve demo.json --warm '' | the file name is empty
solve demo.json --objective '' | unknown objective '' of problem 'sizing'; known: total-completion
solve demo.json --formulation '' | unknown formulation '' of problem 'sizing'; known: mckp, assignment
solve demo.json --solver '' | unknown solver ''; known solvers: auto, price, highs, cpsat, greedy
solve demo.json --sover highs | no such option '--sover'
solve demo.json another.json | got unexpected extra argument (another.json)
solve demo.json --solver pyomo:nonsense | not installed
solve demo.json --formulation intervals --solver highs | cannot place intervals
solve demo.json --formulation intervals --solver greedy | cannot place intervals
solve demo.json --report report.txt | must end in .html
solve demo.json --report none/report.html | does not exist
solve demo.json --frontier 3 --report report.html | --report: cannot be combined with --frontier
solve demo.json --frontier 3 --objective energy,goodput -o f.parquet | are written as .json or .json.gz
solve demo.json --frontier 3 --objective energy,goodput --tolerance 0.1 | --tolerance: cannot be combined
solve demo.json --best 2 -o best.parquet | are written as .json or .json.gz
solve demo.json --tolerance 0.1 | --tolerance: is of several objectives
solve demo.json --differ 2 | --differ: is of the K best decisions
solve '' | the file name is empty
check '' '' | the file name is empty
check - - | only one of INSTANCE and RESULT can be standard input
compare demo.json --solvers highs,,cpsat | empty name
compare demo.json --solvers '' | '--solvers': '' has an empty name between its commas
compare demo.json --formulations nowhere.py:made | nowhere.py: no such file
compare demo.json --objective '' | unknown objective '' of problem 'sizing'; known: total-completion
compare demo.json --gap 2 | not between 0 and 1
compare nowhere.json | nowhere.json: no such file
compare demo.json -o trace.csv | is not a folder
export demo.json | missing option '-o' / '--output'
export demo.json -o model.txt | 'model.txt' must end in .mps, .lp, .json, .conf, .sol or .mst
export demo.json --solution demo.json -o demo.mps | the name of a solution must end in .sol or .mst
export demo.json --solution demo.json -o demo.sol | demo.json: format: expected 'wattsched-result/2'
export demo.json -o demo.sol | must end in .mps or .lp; --solution RESULT writes a solution
export demo.json --style scip -o demo.mps | --style needs --solution
export demo.json --topology --solution demo.json -o a.json | --solution does not go with --topology
compare demo.json --features | --features needs -o, the folder of its table
export demo.json -o tree.json | 'tree.json': the name of a program must end in .mps or .lp
export demo.json --topology -o model.mps | 'model.mps': the name of a topology must end in .json or .conf
export demo.json --formulation intervals -o model.mps | demo.json: the program places intervals on lines
export demo.json --objective '' -o model.lp | unknown objective '' of problem 'sizing'; known:
fit | missing argument 'FILE...'
fit none.csv | no such file
fit sub/steps.csv | error: sub/steps.csv has 1 measurement
fit sub/steps.csv --watts nan 1 1 | '--watts': 'nan' is not a finite number
generate | a family is missing
generate nonsense | unknown family 'nonsense'; known: uniform, hetero, philly-like
generate uniform --jobs 0 | --jobs: must be at least 1, got 0
generate uniform --jobs 99999999999 | --jobs: must be at most 10,000,000
generate uniform --jobs x | '--jobs': 'x' is not a whole number
generate sia-like --gpus 99999999999 | --gpus: must be at most 10,000,000
generate uniform --round-s 0 | --round-s: must be greater than 0
generate uniform --round-s nan | '--round-s': 'nan' is not a finite number
generate philly-like --restart-s -1 | --restart-s: must be greater than or equal to 0
generate uniform --power-fraction lots | '--power-fraction': 'lots' is not a number
generate uniform --power-fraction 0.01 | --power-fraction: must be at least
generate hetero --rack-power-fraction 0.01 | --rack-power-fraction: must be at least
generate hetero --racks 2.5 | '--racks': '2.5' is not a whole number
generate hetero --racks -3 | --racks: must be at least 1, got -3
generate uniform --colour red | no such option '--colour'
generate uniform -o made.yaml | '-o' / '--output': 'made.yaml' must end in .json, .json.gz or
generate shifting --carbon '' | --carbon: the file name is empty
generate shifting --zone DE | --zone: 'DE' is a column of a file, but neither 'carbon' nor 'tariff' names one
generate shifting --units rows | no such option
import | a format is missing
import nonsense trace.csv | unknown format 'nonsense'; known: csv, openb, itp, philly, pai
import itp | missing argument 'FILES...'
import itp missing.csv | missing.csv: no such file or directory
import itp trace.csv --at noon | 'noon' is neither a number of seconds nor 'busiest'
import itp trace.csv --at 1e12 | no job is in the system 1e+12 s after the start of the trace
import itp trace.csv --gpu-type abacus | --gpu-type: 'abacus' is not known, choose one of A10, A100, A2, A30
import itp trace.csv --objective joy | unknown objective 'joy' of problem 'sizing'; known:
import itp trace.csv --power-fraction 0.001 | --power-fraction: must be at least
import itp trace.csv --round -1 | '--round': must be above 0, got -1
import itp trace.csv --restart -1 | '--restart': must be at least 0, got -1
import itp trace.csv --nodes 1000000 --gpus-per-node 1000000 | must be at most 10,000,000
import itp trace.csv --cluster missing.json | missing.json: no such file or directory
import itp trace.csv --cluster trace.csv | trace.csv, line 1: the columns 'sn', 'cpu_milli', 'gpu', 'model'
import itp trace.csv --cluster demo.json --nodes 3 | --nodes does not go with --cluster
import itp trace.csv --cluster demo.json --gpu-type V100 | --gpu-type does not go with --cluster
import itp trace.csv trace.csv | trace.csv: the file is named twice
import itp trace.csv other.csv | other.csv: the job 'a' is in trace.csv too
import itp twice.csv | twice.csv, line 4, column 'job_id': the job 'a' occurs twice
import itp trace.csv -o round.yaml | '-o' / '--output': 'round.yaml' must end in .json, .json.gz or
import openb nodes.csv nodes.csv | one file of nodes, or with --window two, nodes and tasks
import openb nodes.csv --cpu-load 2 | --cpu-load: must be from 0 to 1
import openb nodes.csv --cpu-load x | '--cpu-load': 'x' is not a number
import openb nodes.csv --window 2 | takes two files, nodes and tasks, got 1
import openb tasks.csv nodes.csv --window 2 | tasks.csv, line 1: the columns 'sn', 'gpu', 'model' are
import openb nodes.csv tasks.csv --window 0 | must be at least 1, got 0
import openb nodes.csv tasks.csv --window 2 --cpu-load 0.5 | --cpu-load does not go with --window
import openb nodes.csv tasks.csv --window 2 --placed-by nobody | there is no policy 'nobody'
import openb nodes.csv tasks.csv --window 2 --arrived 3 | must be at most 2, got 3
import openb nodes.csv tasks.csv --arrived 0.5 | --arrived changes nothing without --window
import slurm nodes.txt -o site | no file tells jobs: give what 'sacct --parsable2'
import slurm sacct.txt sacct.txt -o site | sacct.txt: the file is named twice
import slurm demo.json -o site | demo.json: has neither 'jobs' of sacct --json nor
import slurm missing.txt -o site | missing.txt: no such file or directory
import slurm sacct.txt nodes.txt --time-zone Mars -o site | 'Mars' is no time zone such as
import slurm sacct.txt nodes.txt --since 2026-11-01 -o site | --since does not go with files
import slurm sacct.txt nodes.txt --stand-in H9 -o site | invalid value for '--stand-in': 'H9' is not
import slurm sacct.txt nodes.txt --stand-in H9=A100 -o site | --stand-in: no node has GPUs of type 'H9'
import slurm sacct.txt nodes.txt --stand-in A100=H9 -o site | --stand-in: 'H9' is not known, choose one of
import slurm sacct.txt nodes.txt | missing option '-o'
import kubernetes -o site | missing argument 'FILES...'
import kubernetes sacct.txt -o site | sacct.txt: is not valid JSON
import kubernetes demo.json -o site | demo.json: is no list such as
place --policy fdg | there is no policy 'fdg' (did you mean 'fgd'?); see
place --policy '' | '' has an empty name between its commas
place --policy fgd,,pwr | 'fgd,,pwr' has an empty name between its commas
place --policy fgd,pwr,fgd | the policy 'fgd' is named twice
place --policy pwr+fgd:1/2 | the weights of 'pwr+fgd:1/2' must sum to 1000, got 3
place --policy pwr+random:1/999 | 'random' in 'pwr+random:1/999' does not score
place --seeds x | 'x' is neither a seed nor a range such as 42-51
place --seeds 1- | '1-' is neither a seed nor a range
place --seeds '' | '' is neither a seed nor a range
place --seeds=-3 | '-3' is neither a seed nor a range
place --seeds 5-3 | '5-3' ends before it begins
place --seeds 1-3,2 | the seed '2' is named twice
place --seeds 0-9999999999 | must be at most 4,294,967,295, got 9,999,999,999
place --seeds 0-4000000000 | has more than 1,000 seeds
place --arrivals 0 | must be at least 0.01, got 0
place --arrivals -1 | must be at least 0.01, got -1
place --arrivals nan | 'nan' is not a finite number
place --arrivals 1e300 | must be at most 10, got 1e300
place --arrivals much | 'much' is not a number
place --processes 0 | must be at least 1, got 0
place --cpu-model i386 | 'i386' is not one of 'uniform', 'mapped'
place --plot curves.txt | 'curves.txt' must end in .png, .svg or .pdf
place --plot no/such/folder/curves.png | the folder 'no/such/folder' does not exist
place --plot folder.png | is a folder
place --no-bound --bound-gap 0.1 | --bound-gap changes nothing with --no-bound
place --nodes folder.png | folder.png: is a directory
place --tasks folder.png | folder.png: is a directory
place --nodes missing.csv | missing.csv: no such file or directory
place --nodes '' | the file name is empty
replay --budget joules=3 | there are energy_j (in joules), carbon_g (in grams of CO2), money (in that of the
replay --budget joules=3 | '--budget': there is no budget 'joules' (did you mean 'energy_j'?)
replay --budget KWH=3 | no budget 'KWH' (did you mean 'energy_j'?)
replay --budget carbon=3 | no budget 'carbon' (did you mean 'carbon_g'?)
replay --budget energy_j | '--budget': energy_j has no amount, in joules
replay --budget energy_j=5mj | '--budget': 'mj' may be milli or mega: write mJ or MJ
replay --budget energy_j=-1 | '--budget': must be above 0, got -1
replay --budget energy_j=nan | '--budget': 'nan' is not a finite number
replay --budget energy_j=5 | budget: energy_j is 5 J (1.39e-06 kWh) in the period from 0 s on, but the idle
replay --policy elastic --budget energy_j=1.0369e8 --round 3600 | of 103.7 MJ (28.8 kWh) the idle cluster
replay --budget energy_j=3e8 --budget carbon_g=5 | energy_j=3e+08 and carbon_g=5 are given, and a replay has
replay --budget carbon_g=5 | --budget: carbon_g needs --carbon
replay --budget money=5 | --budget: money needs --tariff
replay --tariff inf | '--tariff': 'inf' is not a finite number
replay --budget "energy_j=2 hp" | '--budget': the unit 'hp' is not known; read are J, kJ, MJ, Wh, kWh or MWh
replay --period day | --period needs --budget
replay --budget energy_j=9e9 --period month | '--period': 'month' is neither hour, day, week nor a number of
replay --budget energy_j=9e9 --period 0 | '--period': must be at least 1, got 0
replay --budget energy_j=9e9 --period 1e9 | '--period': must be at most 31,536,000, got 1e9
replay --least-price -1 | '--least-price': must be at least 0, got -1
replay --least-price 1e308 | '--least-price': must be at most 1,000,000,000,000, got 1e308
replay --policy fifo,elastic --least-price 1e-3 | --least-price needs the policy sizing or clairvoyant
replay --policy fifo,powerflow --budget energy_j=1e9 --pacing price | --pacing price needs the policy sizing,
savings jobs.csv --policy powerflow --pacing plan | --pacing plan needs the policy sizing, which makes it
replay --policy best | there is no policy 'best'; there are
replay --policy fifo,fifo | the policy 'fifo' is named twice
replay --seeds 1-2 | --seeds: a csv list with work tells what every job runs
replay --from 1 | --from and --to do not go with a csv list that tells work
replay --format itp --from 3 --to 3 | --to: must be above --from 3, got 3
replay --elasticity 1 | --elasticity does not go with a csv list that tells work; give min_gpus
replay --as-deployed | --as-deployed does not go with a csv list that tells work, whose models, tables
replay --format itp --as-deployed --elasticity 1 | --elasticity does not go with --as-deployed: a list's
replay --format itp --elasticity 65 | --elasticity: must be 1 to 64, got 65
replay --gpu-type H9 | --gpu-type: 'H9' is not known
replay --unit h | --unit does not go with the format csv
replay --format itp --virtual-cluster v | --virtual-cluster does not go with the format itp
replay --format gavel --throughputs '' | '--throughputs': the file name is empty
replay --round -1 | must be at least 0, got -1
replay --round 1e-300 | --round: must be 0 or at least 0.001, got 1e-300
replay --round 1e300 | '--round': must be at most 31,536,000, got 1e300
replay --process-restart 1e300 | '--process-restart': must be at most 31,536,000, got 1e300
replay --carbon much | 'much' is neither a number nor a file
replay --carbon '' | is empty; give an amount per kWh or a file
replay --carbon 1e308 | must be at most 1,000,000, got 1e308
replay --carbon missing.csv | missing.csv: no such file or directory
replay --zone DE | --zone is a column of a file, but neither --carbon nor --tariff names one
replay --carbon 400 --zone DE | --zone is a column of a file, but neither --carbon
replay --carbon 400 --start 2022-03-01 | --start is a time in a file, but none of --carbon
replay --tables '' | '--tables': the file name is empty
replay --cluster '' | '--cluster': the file name is empty
replay '' | the file name is empty
replay --cluster missing.json | missing.json:
replay --cluster c.json --nodes 2 | --nodes does not go with --cluster
replay --profiles missing.json | missing.json: no such file
replay --profiles '' | '--profiles': the file name is empty
replay --gap 1 | --gap: must be below 1, got 1
replay -o /nowhere/at/all | the folder '/nowhere/at' does not exist
replay -o '' | '' is not a folder
replay -o - | '-' is not a folder
replay --resume | --resume needs -o, the folder of the results
replay --checkpoint 1 | --checkpoint needs -o, the folder of the results
replay --sleep-power 0 | --sleep-power needs --sleep-after
replay --wake 5 | --wake needs --sleep-after
replay --sleep-after 60 --sleep-power 5000 | --sleep-power: must be at most 600, which node 'node0' draws when
replay --bound-limit 5 | needs --bound or --energy-bound, which it belongs to
slurm | give one of --shadow
slurm --shadow --apply | give one of --shadow
slurm --apply --snapshot slurm.json | --snapshot: a saved snapshot can only be looked at
slurm --apply | --apply needs --journal FILE
slurm --shadow --power-w 0 | --power-w
slurm --shadow --objective energy | objective: 'energy' lets every job wait that may
slurm --shadow --power-w 1 --budget cap.json | --power-w: cannot be combined with --budget
slurm --shadow --budget nowhere.json | nowhere.json: no such file
slurm --shadow --options nowhere.json | nowhere.json: no such file
slurm --shadow --snapshot slurm.json --readings nowhere.csv | 'nowhere.csv': no such file or folder
slurm --shadow --snapshot slurm.json --readings '' | --readings: ''
slurm --shadow --snapshot slurm.json --readings http://localhost/ | must be as http://HOST:PORT
slurm --shadow --snapshot nowhere.json | nowhere.json: no such file
slurm --shadow --snapshot slurm.json --objective money | 'money'
slurm --shadow --every 0 | --every
slurm --shadow --give-back | --give-back: cannot be combined with --shadow
slurm --give-back | needs --journal FILE
kubernetes | give one of --shadow
kubernetes --apply --snapshot kubernetes.json | --snapshot: a saved snapshot can only be looked at
kubernetes --apply | --apply needs --journal FILE
kubernetes --shadow --power-w 1 --budget cap.json | --power-w: cannot be combined with --budget
kubernetes --shadow --snapshot kubernetes.json --budget nowhere.json | nowhere.json: no such file
kubernetes --shadow --options nowhere.json | nowhere.json: no such file
kubernetes --shadow --snapshot kubernetes.json --readings nowhere.csv | 'nowhere.csv': no such file
kubernetes --shadow --snapshot nowhere.json | nowhere.json: no such file
kubernetes --shadow --snapshot kubernetes.json --config-map a/b | --config-map cannot be combined
kubernetes --apply --journal j --scheduler-name default-scheduler | --scheduler-name: 'default-scheduler'
serve j.db --host 0.0.0.0 | --tokens FILE has to say who may ask
serve j.db --add-token x | needs --tokens FILE
serve j.db --read-only | needs --add-token
serve j.db --socket s --port 3 | --port cannot be combined with --socket
serve j.db --socket j.db-wal | --socket: 'j.db-wal' is a file of the journal
serve j.db --socket one | cannot listen on one: is there, and is no socket
serve j.db --socket none/s | cannot listen on none/s: no such file or directory
serve j.db --rate 0 | --rate: must be positive
serve j.db --tokens nowhere | nowhere: no such file
serve j.db --tokens /dev/null | /dev/null: is no regular file
serve j.db --host 192.0.2.1 --tokens trace.csv | line 1: must be NAME read|write DIGEST
serve j.db --tokens empty | 'empty' has no token, so nobody could ask
serve j.db --host 192.0.2.1 --tokens one | cannot listen on 192.0.2.1
"""
"""A command, and a part of what it says of what is wrong with it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that commands read; none may be added."""
    made = tmp_path_factory.mktemp("refused")
    for name, content in FILES.items():
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_text(content)
    for name in COPIED:
        shutil.copy(EXAMPLES / name, made)
    return made


def arguments(line: str) -> list[str]:
    command, *given = shlex.split(line)
    usual = USUAL.get(command, {})
    if "--format" in given:
        usual = {"": "trace.csv"}
    return [
        command,
        *(word for pair in usual.items() if pair[0] not in given for word in pair if word),
        *given,
    ]


@pytest.mark.parametrize("line", [line for line in REFUSED.splitlines() if line])
def test_it_is_refused_in_one_line_and_leaves_nothing(run, folder, monkeypatch, line):
    monkeypatch.chdir(folder)
    before = {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}
    words, _, fault = line.partition(" | ")
    result = run(*arguments(words))
    refused(result, fault)
    assert result.stderr.startswith("error: ")
    assert {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")} == before
