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

local function asks_for_gpus(job)
   for _, field in ipairs({ "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket", "gres" }) do
      local asked = job[field]
      if asked ~= nil and string.find(asked, "gpu") then return true end
   end
   return false
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
   if not asks_for_gpus(job) or not is_guarded(partition_of(job, partitions)) then return slurm.SUCCESS end
   -- Who has a reservation has its nodes from an administrator.
   if job.reservation ~= nil and job.reservation ~= "" then return slurm.SUCCESS end
   return hold(job)
end

function slurm_job_modify(job, record, partitions, user)
   if operators[user] then return slurm.SUCCESS end
   local released = job.priority ~= nil and job.priority ~= slurm.NO_VAL and job.priority ~= 0
   if released and record.priority == 0 and is_guarded(record.partition) then
      slurm.log_user("wattsched releases jobs of this partition; its reason is in AdminComment")
      return slurm.ERROR
   end
   -- A job that comes from another partition waits as all do.
   if is_guarded(job.partition) and not is_guarded(record.partition) then job.priority = 0 end
   return slurm.SUCCESS
end

return slurm.SUCCESS
