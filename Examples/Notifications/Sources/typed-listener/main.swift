import NotifyCenterFoundation
import Orders

for await order in try DistributedNotificationCenter.default().messages(of: "till-3", for: OrderPlaced.self) {
    print("till-3", order.total)
}
