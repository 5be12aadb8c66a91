import NotifyCenterFoundation
import Orders

try DistributedNotificationCenter.default().post(OrderPlaced(total: 12.5), subject: "till-3")
