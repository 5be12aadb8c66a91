import NotifyCenter

let center = DistributedNotifyCenter.default
try center.post("com.example.order", object: "till-3", userInfo: ["total": 12.5])
