-- Guard of Slurm for wattsched: GPU jobs of some partitions are submitted held and tagged, whatever their users say.
-- slurm.conf: JobSubmitPlugins=lua; this file lies beside it as job_submit.lua. See docs/slurm.md.

-- Partitions whose GPU jobs wattsched decides on.
local guarded = { gpu = true }
-- Numbers of the users who may release jobs, besides root: the one that wattsched runs as (id -u slurm).
local operators = { [0] = true }

local function is_guarded(names)
   for name in string.gmatch(names or "", "[^,]+") do
      if guarded[name] then return true end
   end
   return false
end

local function partition_of(job, partitions)
   if job.partition ~= nil and job.partition ~= "" then return job.partition end
   for name, partition in pairs(partitions or {}) do
      if partition.flag_default == 1 then return partition.name or name end
   end
   return ""
end

local fields = { "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket", "gres", "tres_fmt_req_str" }

-- Whether a job asks for GPUs or parts of them; `unknown` where nothing says what it asks for.
local function asks_for_gpus(job, unknown)
   local known = false
   for _, field in ipairs(fields) do
      local asked = job[field]
      if type(asked) == "string" and asked ~= "" then
         known = true
         for _, kind in ipairs({ "gpu", "shard", "mps" }) do
            if string.find(asked, kind) then return true end
         end
      end
   end
   return unknown and not known
end

-- The comment with our key. What another comment says is kept beside it.
local function tagged(comment)
   if comment == nil or comment == "" then return '{"wattsched": {}}' end
   if string.find(comment, '^%s*{.*"wattsched"%s*:') then return comment end
   local escapes = { ["\\"] = "\\\\", ['"'] = '\\"' }
   local text = string.gsub(comment, '[%c"\\]', function(one)
      return escapes[one] or string.format("\\u%04x", string.byte(one))
   end)
   return '{"wattsched": {}, "comment": "' .. text .. '"}'
end

local function hold(job)
   if job.array_inx ~= nil and job.array_inx ~= "" then
      slurm.log_user("wattsched: arrays with GPUs cannot be decided on; submit jobs one by one")
      return slurm.ERROR
   end
   job.priority = 0
   job.comment = tagged(job.comment)
   return slurm.SUCCESS
end

function slurm_job_submit(job, partitions, user)
   -- A job with --exclusive is given all GPUs of its nodes.
   local takes_gpus = asks_for_gpus(job, false) or job.shared == 0
   if not takes_gpus or not is_guarded(partition_of(job, partitions)) then return slurm.SUCCESS end
   -- Who has a reservation has its nodes from an administrator.
   if job.reservation ~= nil and job.reservation ~= "" then return slurm.SUCCESS end
   return hold(job)
end

-- What a user changes may make a job one of those that are held: GPUs, the partition, a reservation that is given up.
function slurm_job_modify(job, record, partitions, user)
   if operators[user] then return slurm.SUCCESS end
   local partition = job.partition
   if partition == nil or partition == "" then partition = record.partition end
   if not is_guarded(partition) then return slurm.SUCCESS end
   local released = job.priority ~= nil and job.priority ~= slurm.NO_VAL and job.priority ~= 0
   if released and record.priority == 0 then
      slurm.log_user("wattsched releases jobs of this partition; its reason is in AdminComment")
      return slurm.ERROR
   end
   local moved = not is_guarded(record.partition) or job.reservation == ""
   if asks_for_gpus(job, false) or (moved and asks_for_gpus(record, true)) then
      if job.comment == nil then job.comment = record.comment end
      return hold(job)
   end
   return slurm.SUCCESS
end

return slurm.SUCCESS
